// A PNG encoder (W3C PNG, third edition; RFC 1950 zlib, RFC 1951 deflate).
#include "cli/io/png.h"

#include <algorithm>

namespace tilefold::cli {
namespace {

void append_big_endian(std::string* out, uint32_t value) {
  for (int shift = 24; shift >= 0; shift -= 8) *out += static_cast<char>(value >> shift);
}

uint32_t crc32(std::string_view bytes) {
  uint32_t crc = 0xffffffffu;
  for (const unsigned char byte : bytes) {
    crc ^= byte;
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
  }
  return ~crc;
}

uint32_t adler32(std::string_view bytes) {
  uint32_t a = 1;
  uint32_t b = 0;
  for (const unsigned char byte : bytes) {
    a = (a + byte) % 65521;
    b = (b + a) % 65521;
  }
  return b << 16 | a;
}

void append_chunk(std::string* png, std::string_view type, std::string_view data) {
  append_big_endian(png, static_cast<uint32_t>(data.size()));
  const size_t start = png->size();
  png->append(type).append(data);
  append_big_endian(png, crc32(std::string_view(*png).substr(start)));
}

// Deflate's bit stream: values go least significant bit first, codes most significant bit first.
class BitWriter {
 public:
  void value(uint32_t bits, int count) {
    for (int i = 0; i < count; ++i) push(bits >> i & 1);
  }
  void code(uint32_t bits, int count) {
    for (int i = count - 1; i >= 0; --i) push(bits >> i & 1);
  }
  std::string finish() {
    if (filled_ > 0) bytes_ += static_cast<char>(byte_);
    return std::move(bytes_);
  }

 private:
  void push(uint32_t bit) {
    byte_ |= bit << filled_;
    if (++filled_ == 8) {
      bytes_ += static_cast<char>(byte_);
      byte_ = 0;
      filled_ = 0;
    }
  }
  std::string bytes_;
  uint32_t byte_ = 0;
  int filled_ = 0;
};

// RFC 1951, 3.2.6: the fixed code of a literal or length symbol.
void write_symbol(BitWriter* out, int symbol) {
  if (symbol < 144) {
    out->code(0x30 + symbol, 8);
  } else if (symbol < 256) {
    out->code(0x190 + symbol - 144, 9);
  } else if (symbol < 280) {
    out->code(symbol - 256, 7);
  } else {
    out->code(0xc0 + symbol - 280, 8);
  }
}

// RFC 1951, 3.2.5: a match of `length` (3 to 258) at distance 1.
void write_run(BitWriter* out, int length) {
  if (length == 258) {
    write_symbol(out, 285);
  } else if (length <= 10) {
    write_symbol(out, 257 + length - 3);
  } else {
    // Groups of four symbols, with 1, 2, ... 5 extra bits.
    int extra_bits = 1;
    int base = 11;
    int symbol = 265;
    while (length >= base + (4 << extra_bits)) {
      base += 4 << extra_bits;
      symbol += 4;
      ++extra_bits;
    }
    write_symbol(out, symbol + ((length - base) >> extra_bits));
    out->value((length - base) & ((1 << extra_bits) - 1), extra_bits);
  }
  out->code(0, 5);  // distance symbol 0: 1
}

std::string zlib(std::string_view bytes) {
  constexpr size_t kMinRun = 3;
  constexpr size_t kMaxRun = 258;
  BitWriter bits;
  bits.value(1, 1);  // the last block
  bits.value(1, 2);  // of fixed codes
  for (size_t at = 0; at < bytes.size();) {
    size_t run = 0;
    if (at > 0) {
      const size_t most = std::min(kMaxRun, bytes.size() - at);
      while (run < most && bytes[at + run] == bytes[at - 1]) ++run;
    }
    if (run >= kMinRun) {
      write_run(&bits, static_cast<int>(run));
      at += run;
    } else {
      write_symbol(&bits, static_cast<unsigned char>(bytes[at++]));
    }
  }
  write_symbol(&bits, 256);
  std::string out = "\x78\x01";
  out += bits.finish();
  append_big_endian(&out, adler32(bytes));
  return out;
}

}  // namespace

std::string encode_png(const Picture& picture) {
  constexpr char kUp = 2;
  std::string scanlines;
  for (int y = 0; y < picture.height(); ++y) {
    scanlines += kUp;
    const auto row = picture.row(y);
    for (int x = 0; x < picture.width(); ++x) {
      scanlines += static_cast<char>(row[x] - (y > 0 ? picture.row(y - 1)[x] : 0));
    }
  }
  std::string header;
  append_big_endian(&header, static_cast<uint32_t>(picture.width()));
  append_big_endian(&header, static_cast<uint32_t>(picture.height()));
  header += std::string("\x08\x03\x00\x00\x00", 5);  // 8 bits, palette, no interlace
  std::string palette;
  for (const Rgb& colour : picture.palette()) {
    palette.append(reinterpret_cast<const char*>(colour.data()), colour.size());
  }
  std::string png = "\x89PNG\r\n\x1a\n";
  append_chunk(&png, "IHDR", header);
  append_chunk(&png, "PLTE", palette);
  append_chunk(&png, "IDAT", zlib(scanlines));
  append_chunk(&png, "IEND", "");
  return png;
}

}  // namespace tilefold::cli
