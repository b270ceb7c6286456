// Structs that grow: a library whose structs have grown, and callers of every release.
#include "core/growth.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>

namespace tilefold {
namespace {

// What tilefold_options may become.
struct GrownOptions {
  size_t struct_bytes;
  std::array<char, kFirstOptionsBytes - sizeof(size_t)> first;
  int64_t added;
};
static_assert(sizeof(GrownOptions) == kFirstOptionsBytes + 8);

// Memory of a caller, with a member after the struct that must not be written.
struct Caller {
  std::array<unsigned char, 96> bytes;
  Caller() { bytes.fill(0xab); }
  size_t struct_bytes() const {
    size_t value = 0;
    std::memcpy(&value, bytes.data(), sizeof(value));
    return value;
  }
};

GrownOptions some_options() {
  GrownOptions options = {};
  options.struct_bytes = sizeof(options);
  options.first.fill('f');
  options.added = 7;
  return options;
}

TEST(GrowthTest, TheFirstReleaseIsThisOne) {
  // On growth: these lines go, those of the literals in growth.h stay.
  EXPECT_EQ(sizeof(tilefold_options), kFirstOptionsBytes);
  EXPECT_EQ(sizeof(tilefold_device_info), kFirstDeviceInfoBytes);
  EXPECT_EQ(sizeof(tilefold_kernel_info), kFirstKernelInfoBytes);
}

TEST(GrowthTest, AnOlderCallersStructIsWrittenToItsEndAndNoFurther) {
  Caller caller;
  write_known(some_options(), kFirstOptionsBytes, caller.bytes.data());
  EXPECT_EQ(caller.struct_bytes(), kFirstOptionsBytes);
  EXPECT_EQ(caller.bytes[sizeof(size_t)], 'f');
  EXPECT_EQ(caller.bytes[kFirstOptionsBytes - 1], 'f');
  for (size_t i = kFirstOptionsBytes; i < caller.bytes.size(); ++i) {
    ASSERT_EQ(caller.bytes[i], 0xab) << "byte " << i;
  }
}

TEST(GrowthTest, ALaterCallersStructIsWrittenAsFarAsKnown) {
  Caller caller;
  write_known(some_options(), 80, caller.bytes.data());
  EXPECT_EQ(caller.struct_bytes(), 80u);
  int64_t added = 0;
  std::memcpy(&added, caller.bytes.data() + kFirstOptionsBytes, sizeof(added));
  EXPECT_EQ(added, 7);
  for (size_t i = sizeof(GrownOptions); i < caller.bytes.size(); ++i) {
    ASSERT_EQ(caller.bytes[i], 0xab) << "byte " << i;
  }
}

TEST(GrowthTest, WhatAnOlderCallerDoesNotKnowKeepsItsDefault) {
  Caller caller;
  GrownOptions options = some_options();
  options.first.fill('d');
  read_known(caller.bytes.data(), kFirstOptionsBytes, &options);
  EXPECT_EQ(options.struct_bytes, sizeof(options));
  EXPECT_EQ(static_cast<unsigned char>(options.first[0]), 0xab);
  EXPECT_EQ(static_cast<unsigned char>(options.first.back()), 0xab);
  EXPECT_EQ(options.added, 7);
}

TEST(GrowthTest, OfALaterCallersStructTheKnownPartIsRead) {
  Caller caller;
  GrownOptions options = some_options();
  read_known(caller.bytes.data(), caller.bytes.size(), &options);
  EXPECT_EQ(options.struct_bytes, sizeof(options));
  EXPECT_NE(options.added, 7);
}

}  // namespace
}  // namespace tilefold
