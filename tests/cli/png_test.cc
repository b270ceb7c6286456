// The PNG encoder: its chunks, checksums and deflate stream, read back by a decoder of the test's
// own.
#include "cli/io/png.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace tilefold::cli {
namespace {

uint32_t big_endian(const std::string& bytes, size_t at) {
  uint32_t value = 0;
  for (size_t i = 0; i < 4; ++i) value = value << 8 | uint8_t(bytes.at(at + i));
  return value;
}

uint32_t crc_of(const std::string& bytes) {
  uint32_t crc = ~0u;
  for (const char c : bytes) {
    crc ^= uint8_t(c);
    for (int i = 0; i < 8; ++i) crc = (crc >> 1) ^ (0xedb88320u & (0u - (crc & 1)));
  }
  return ~crc;
}

// Inflates one block of fixed codes (RFC 1951, 3.2.6).
class FixedInflater {
 public:
  explicit FixedInflater(const std::string& bytes) : bytes_(bytes) {}
  std::string inflate() {
    static constexpr int kBase[] = {3,  4,  5,  6,  7,  8,  9,  10, 11,  13,  15,  17,  19,  23, 27,
                                    31, 35, 43, 51, 59, 67, 83, 99, 115, 131, 163, 195, 227, 258};
    static constexpr int kExtra[] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2,
                                     2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0};
    if (bits(1) != 1 || bits(2) != 1) throw std::runtime_error("not one fixed block");
    std::string out;
    for (int symbol; (symbol = next_symbol()) != 256;) {
      if (symbol < 256) {
        out += char(symbol);
        continue;
      }
      const int length = kBase[symbol - 257] + bits(kExtra[symbol - 257]);
      if (code(5) != 0) throw std::runtime_error("a distance other than 1");
      out.append(size_t(length), out.at(out.size() - 1));
    }
    return out;
  }

 private:
  int bits(int count) {
    int value = 0;
    for (int i = 0; i < count; ++i) value |= bit() << i;
    return value;
  }
  int code(int count) {
    int value = 0;
    for (int i = 0; i < count; ++i) value = value << 1 | bit();
    return value;
  }
  int bit() {
    const int value = uint8_t(bytes_.at(at_ / 8)) >> (at_ % 8) & 1;
    ++at_;
    return value;
  }
  int next_symbol() {
    int value = code(7);
    if (value <= 0x17) return 256 + value;
    value = value << 1 | bit();
    if (value >= 0x30 && value <= 0xbf) return value - 0x30;
    if (value >= 0xc0 && value <= 0xc7) return 280 + value - 0xc0;
    value = value << 1 | bit();
    return 144 + value - 0x190;
  }
  const std::string& bytes_;
  size_t at_ = 0;
};

// Every pixel's index, from the file's bytes.
std::vector<uint8_t> decode(const std::string& png, int width, int height) {
  EXPECT_EQ(png.substr(0, 8), "\x89PNG\r\n\x1a\n");
  std::string data;
  std::string order;
  for (size_t at = 8; at < png.size();) {
    const uint32_t size = big_endian(png, at);
    const std::string type = png.substr(at + 4, 4);
    const std::string body = png.substr(at + 8, size);
    EXPECT_EQ(big_endian(png, at + 8 + size), crc_of(type + body)) << type;
    if (type == "IHDR") {
      EXPECT_EQ(big_endian(body, 0), uint32_t(width));
      EXPECT_EQ(big_endian(body, 4), uint32_t(height));
    }
    if (type == "IDAT") data = body;
    order += type + " ";
    at += 12 + size;
  }
  EXPECT_EQ(order, "IHDR PLTE IDAT IEND ");
  EXPECT_EQ((uint8_t(data[0]) * 256 + uint8_t(data[1])) % 31, 0);
  const std::string deflated = data.substr(2, data.size() - 6);
  const std::string lines = FixedInflater(deflated).inflate();
  uint32_t a = 1, b = 0;
  for (const char c : lines) {
    a = (a + uint8_t(c)) % 65521;
    b = (b + a) % 65521;
  }
  EXPECT_EQ(big_endian(data, data.size() - 4), b << 16 | a);
  EXPECT_EQ(lines.size(), size_t(height) * (size_t(width) + 1));
  std::vector<uint8_t> pixels(size_t(width) * size_t(height));
  for (int y = 0; y < height; ++y) {
    const size_t line = size_t(y) * (size_t(width) + 1);
    EXPECT_EQ(lines.at(line), 2);
    for (int x = 0; x < width; ++x) {
      const uint8_t above = y > 0 ? pixels[size_t(y - 1) * width + x] : 0;
      pixels[size_t(y) * width + x] = uint8_t(uint8_t(lines.at(line + 1 + size_t(x))) + above);
    }
  }
  return pixels;
}

TEST(PngTest, DecodesToTheSamePixels) {
  std::vector<Rgb> palette(256);
  for (int i = 0; i < 256; ++i) palette[size_t(i)] = {uint8_t(i), uint8_t(255 - i), 7};
  // Runs of every length from 1 to 600, and noise.
  constexpr int kWidth = 601;
  constexpr int kHeight = 80;
  Picture picture(kWidth, kHeight, palette, 3);
  uint32_t state = 1;
  int run = 1;
  for (int y = 0; y < kHeight; ++y) {
    for (int x = 0; x < kWidth;) {
      state = state * 1664525u + 1013904223u;
      if (y % 4 == 3) {
        picture.set(x++, y, uint8_t(state >> 24));
      } else {
        picture.fill(x, y, run, 1, uint8_t(state >> 24));
        x += run;
        run = run % 600 + 1;
      }
    }
  }
  const std::vector<uint8_t> pixels = decode(encode_png(picture), kWidth, kHeight);
  for (int y = 0; y < kHeight; ++y) {
    for (int x = 0; x < kWidth; ++x) {
      ASSERT_EQ(pixels[size_t(y) * kWidth + x], picture.row(y)[size_t(x)]) << x << ", " << y;
    }
  }
}

TEST(PngTest, DrawingOutsideIsIgnored) {
  Picture picture(2, 2, {{0, 0, 0}, {255, 255, 255}});
  picture.fill(-5, -5, 6, 6, 1);
  picture.set(2, 0, 1);
  EXPECT_EQ(picture.row(0)[0], 1);
  EXPECT_EQ(picture.row(0)[1], 0);
  EXPECT_EQ(picture.row(1)[0], 0);
}

}  // namespace
}  // namespace tilefold::cli
