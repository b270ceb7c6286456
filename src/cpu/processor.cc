// Reads the processor's instruction sets from CPUID and its name and caches from the system.
#include "cpu/processor.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace tilefold::cpu {
namespace {

// The value after "model name : " of /proc/cpuinfo ("Model" on some AArch64 systems).
void read_name(char (&name)[128]) {
  std::snprintf(name, sizeof(name), "unknown processor");
  std::FILE* file = std::fopen("/proc/cpuinfo", "r");
  if (file == nullptr) return;
  char line[512];
  while (std::fgets(line, sizeof(line), file) != nullptr) {
    if (std::strncmp(line, "model name", 10) != 0 && std::strncmp(line, "Model", 5) != 0) continue;
    const char* value = std::strchr(line, ':');
    if (value == nullptr) continue;
    value += 1 + (value[1] == ' ');
    std::snprintf(name, sizeof(name), "%.*s", static_cast<int>(std::strcspn(value, "\n")), value);
    break;
  }
  std::fclose(file);
}

// Bytes of cache `index` of processor 0, and its level; 0 if the system does not tell.
int64_t read_cache(int index, int* level) {
  char path[96];
  char text[32] = "";
  std::snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu0/cache/index%d/level", index);
  std::FILE* file = std::fopen(path, "r");
  if (file == nullptr) return 0;
  if (std::fscanf(file, "%d", level) != 1) *level = 0;
  std::fclose(file);
  std::snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu0/cache/index%d/type", index);
  file = std::fopen(path, "r");
  if (file != nullptr) {
    if (std::fscanf(file, "%31s", text) != 1) text[0] = '\0';
    std::fclose(file);
    if (std::strcmp(text, "Instruction") == 0) return 0;
  }
  std::snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu0/cache/index%d/size", index);
  file = std::fopen(path, "r");
  if (file == nullptr) return 0;
  long long size = 0;
  char unit = ' ';
  if (std::fscanf(file, "%lld%c", &size, &unit) < 1) size = 0;
  std::fclose(file);
  return size * (unit == 'K' ? 1024 : unit == 'M' ? 1024 * 1024 : 1);
}

void read_caches(Processor* p) {
#if defined(_SC_LEVEL1_DCACHE_SIZE)
  p->l1d_bytes = sysconf(_SC_LEVEL1_DCACHE_SIZE);
  p->l2_bytes = sysconf(_SC_LEVEL2_CACHE_SIZE);
  p->last_level_bytes = sysconf(_SC_LEVEL3_CACHE_SIZE);
#endif
  for (int index = 0; index < 6; ++index) {
    int level = 0;
    const int64_t bytes = read_cache(index, &level);
    if (bytes <= 0) continue;
    if (level == 1 && p->l1d_bytes <= 0) p->l1d_bytes = bytes;
    if (level == 2 && p->l2_bytes <= 0) p->l2_bytes = bytes;
    if (level >= 3 && p->last_level_bytes <= 0) p->last_level_bytes = bytes;
  }
  if (p->last_level_bytes <= 0) p->last_level_bytes = p->l2_bytes > 0 ? p->l2_bytes : 0;
  if (p->l1d_bytes <= 0) p->l1d_bytes = 32 * 1024;
  if (p->l2_bytes <= 0) p->l2_bytes = 512 * 1024;
}

#if defined(__x86_64__)

bool has(unsigned word, unsigned bit) { return (word >> bit & 1) != 0; }

// XCR0: which register files the system saves (Intel SDM volume 1, 13.3).
uint64_t enabled_states() {
  unsigned low, high;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return uint64_t{high} << 32 | low;
}

// Linux hands out the 8 KiB of tile registers on request only (arch_prctl, since 5.16).
bool request_tile_registers() {
#if defined(SYS_arch_prctl)
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long kTileData = 18;               // XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}

void read_instruction_sets(Processor* p) {
  unsigned a, b, c, d;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0) return;
  const unsigned leaf1_c = c;
  p->sse4 = has(leaf1_c, 20) && has(leaf1_c, 9) && has(leaf1_c, 1) && has(leaf1_c, 25);
  const bool system_saves = has(leaf1_c, 27);
  const uint64_t states = system_saves ? enabled_states() : 0;
  const bool ymm = (states & 0x6) == 0x6;
  const bool zmm = ymm && (states & 0xE0) == 0xE0;
  const bool tiles = (states & 0x60000) == 0x60000;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return;
  const unsigned leaf7_b = b;
  const unsigned leaf7_d = d;
  const bool lzcnt = __get_cpuid(0x80000001, &a, &b, &c, &d) != 0 && has(c, 5);
  const bool avx = has(leaf1_c, 28) && has(leaf1_c, 12) && has(leaf1_c, 29);  // AVX, FMA, F16C
  p->avx2 = p->sse4 && ymm && avx && lzcnt && has(leaf7_b, 5) && has(leaf7_b, 3) && has(leaf7_b, 8);
  p->avx512 = p->avx2 && zmm && has(leaf7_b, 16) && has(leaf7_b, 17) && has(leaf7_b, 28) &&
              has(leaf7_b, 30) && has(leaf7_b, 31);
  const bool avx512_bf16 = __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && has(a, 5);
  p->amx_bf16 = p->avx512 && tiles && avx512_bf16 && has(leaf7_d, 22) && has(leaf7_d, 24) &&
                request_tile_registers();
}

#else

void read_instruction_sets(Processor*) {}

#endif

}  // namespace

const Processor& processor() {
  static const Processor value = [] {
    Processor p;
    read_name(p.name);
    read_caches(&p);
    read_instruction_sets(&p);
    return p;
  }();
  return value;
}

}  // namespace tilefold::cpu
