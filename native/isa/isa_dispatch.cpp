// Which instruction sets (isas) this build has kernels for, and which of them this processor runs.
// No source file belongs to one isa: native/kernels/ is compiled once for each (CMakeLists.txt), over
// sixteen lanes (simd/), where what is an isa's own stands under #if. The best one is taken when the
// module is loaded (runtime/context.cpp).
#include <cstring>

#include "contract/kernels.h"

#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace inferno {

namespace scalar {
const Kernels* table();
}
#if defined(__x86_64__)
namespace avx2 {
const Kernels* table();
}
namespace avx2_vnni {
const Kernels* table();
}
namespace avx512 {
const Kernels* table();
}
namespace avx512_bf16 {
const Kernels* table();
}
namespace amx {
const Kernels* table();
}
#endif

namespace {

struct Isa {
    const char* name;
    bool is_here;
    const Kernels* (*table)();
};

// From best to worst. The compiler's own check also asks whether the system saves the registers.
#if defined(__x86_64__)
bool has_avx_vnni() {
    unsigned eax = 7, ebx = 0, ecx = 1, edx = 0;
    __asm__ volatile("cpuid" : "+a"(eax), "+b"(ebx), "+c"(ecx), "+d"(edx));
    return (eax >> 4 & 1) != 0;
}

// Whether there are matrix registers, which Linux lends to a process that asks for them.
bool has_amx() {
#if defined(__linux__)
    constexpr unsigned kBf16AndTiles = 1u << 22 | 1u << 24;
    constexpr long kAskForState = 0x1023, kTileData = 18;
    unsigned eax = 7, ebx = 0, ecx = 0, edx = 0;
    __asm__ volatile("cpuid" : "+a"(eax), "+b"(ebx), "+c"(ecx), "+d"(edx));
    return (edx & kBf16AndTiles) == kBf16AndTiles &&
           syscall(SYS_arch_prctl, kAskForState, kTileData) == 0;
#else
    return false;
#endif
}

int list_isas(Isa out[]) {
    __builtin_cpu_init();
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                      __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("f16c");
    const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") &&
                        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                        __builtin_cpu_supports("avx512vl");
    const bool bf16 = avx512 && __builtin_cpu_supports("avx512vnni") &&
                      __builtin_cpu_supports("avx512bf16");
    out[0] = {"amx", bf16 && has_amx(), amx::table};
    out[1] = {"avx512_bf16", bf16, avx512_bf16::table};
    out[2] = {"avx512", avx512, avx512::table};
    out[3] = {"avx2_vnni", avx2 && has_avx_vnni(), avx2_vnni::table};
    out[4] = {"avx2", avx2, avx2::table};
    out[5] = {"scalar", true, scalar::table};
    return 6;
}
#else
int list_isas(Isa out[]) {
    out[0] = {"scalar", true, scalar::table};
    return 1;
}
#endif

}  // namespace

const Kernels* find_kernels(const char* name) {
    Isa all[6];
    const int count = list_isas(all);
    for (int i = 0; i < count; ++i) {
        if (std::strcmp(all[i].name, name) == 0) return all[i].is_here ? all[i].table() : nullptr;
    }
    return nullptr;
}

const Kernels* best_kernels() {
    Isa all[6];
    const int count = list_isas(all);
    for (int i = 0; i < count; ++i) {
        if (all[i].is_here && all[i].table()) return all[i].table();
    }
    return nullptr;
}

}  // namespace inferno
