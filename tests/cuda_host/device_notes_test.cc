// Sentences on devices that cannot be used.
#include "cuda/device_notes.h"

#include <gtest/gtest.h>

#include <string>

namespace tilefold {
namespace {

DeviceProperties device(int32_t compute_capability) {
  DeviceProperties p;
  p.type = DeviceType::kCuda;
  p.compute_capability = compute_capability;
  note_usability(&p);
  return p;
}

TEST(DeviceNotesTest, DevicesBefore80AreRefusedWithTheirComputeCapability) {
  for (const int32_t capability : {80, 86, 87, 89, 90, 100, 103, 110, 120, 121}) {
    EXPECT_TRUE(device(capability).usable) << capability;
    EXPECT_STREQ("", device(capability).note) << capability;
  }
  for (const int32_t capability : {0, 52, 61, 70, 75}) EXPECT_FALSE(device(capability).usable);
  EXPECT_STREQ("its compute capability is 7.5; the CUDA back ends need 8.0 (Ampere) or later",
               device(75).note);
}

std::string note(int driver_version, bool too_old, const char* error) {
  char text[kNoteBytes];
  note_no_device(text, driver_version, 13000, too_old, error);
  return text;
}

TEST(DeviceNotesTest, NoDriverAndTooOldADriverAreDifferentSentences) {
  // The runtime calls both an insufficient driver.
  constexpr const char* kError = "CUDA driver version is insufficient for CUDA runtime version";
  EXPECT_EQ("no NVIDIA driver is installed", note(0, true, kError));
  EXPECT_EQ("the NVIDIA driver serves CUDA 12.4; this build needs a driver for CUDA 13.0 or later",
            note(12040, true, kError));
}

TEST(DeviceNotesTest, ADriverWithoutADeviceGivesTheRuntimesWords) {
  EXPECT_EQ("no CUDA-capable device is detected (the NVIDIA driver serves CUDA 13.1)",
            note(13010, false, "no CUDA-capable device is detected"));
}

}  // namespace
}  // namespace tilefold
