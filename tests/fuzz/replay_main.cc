// Runs a fuzz target over committed corpus files, and over every prefix and some byte flips of
// each: what a compiler without libFuzzer can do.
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

int main(int argc, char** argv) {
  int files = 0;
  long runs = 0;
  for (int argument = 1; argument < argc; ++argument) {
    for (const auto& entry : std::filesystem::directory_iterator(argv[argument])) {
      std::ifstream stream(entry.path(), std::ios::binary);
      std::vector<char> text((std::istreambuf_iterator<char>(stream)),
                             std::istreambuf_iterator<char>());
      // In a buffer of exactly its size, so that a read beyond is one beyond an allocation.
      std::vector<uint8_t> bytes(text.begin(), text.end());
      bytes.shrink_to_fit();
      LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
      ++files;
      for (size_t size = 0; size < bytes.size() && size < 4096; ++size, ++runs) {
        const std::vector<uint8_t> prefix(bytes.begin(), bytes.begin() + size);
        LLVMFuzzerTestOneInput(prefix.data(), prefix.size());
      }
      for (size_t at = 0; at < bytes.size() && at < 1024; ++at) {
        for (const int flip : {0x01, 0x20, 0x80, 0xff}) {
          std::vector<uint8_t> spoiled = bytes;
          spoiled[at] = static_cast<uint8_t>(spoiled[at] ^ flip);
          LLVMFuzzerTestOneInput(spoiled.data(), spoiled.size());
          ++runs;
        }
      }
    }
  }
  std::printf("%d corpus files, %ld variants of them\n", files, runs);
  return files > 0 ? 0 : 1;
}
