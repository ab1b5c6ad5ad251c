// Which instruction sets (isas) this build has kernels for, and which of them this processor runs.
// No source file belongs to one isa: native/kernels/ is compiled once for each (CMakeLists.txt), over
// sixteen lanes (simd/), where what is an isa's own stands under #if. The best one is taken when the
// module is loaded (runtime/context.cpp).
#include <cstring>
#include <vector>

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
    bool is_here;
    const Kernels* (*table)();
};

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

// From best to worst. The compiler's own check also asks whether the system saves the registers.
std::vector<Isa> list_isas() {
    __builtin_cpu_init();
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                      __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("f16c");
    const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") &&
                        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                        __builtin_cpu_supports("avx512vl");
    const bool bf16 = avx512 && __builtin_cpu_supports("avx512vnni") &&
                      __builtin_cpu_supports("avx512bf16");
    return {
        {bf16 && has_amx(), amx::table},
        {bf16, avx512_bf16::table},
        {avx512, avx512::table},
        {avx2 && has_avx_vnni(), avx2_vnni::table},
        {avx2, avx2::table},
        {true, scalar::table},
    };
}
#else
std::vector<Isa> list_isas() { return {{true, scalar::table}}; }
#endif

}  // namespace

std::vector<const Kernels*> usable_kernels() {
    std::vector<const Kernels*> found;
    for (const Isa& isa : list_isas()) {
        if (isa.is_here && isa.table()) found.push_back(isa.table());
    }
    return found;
}

const Kernels* find_kernels(const char* name) {
    for (const Kernels* kernels : usable_kernels()) {
        if (std::strcmp(kernels->isa, name) == 0) return kernels;
    }
    return nullptr;
}

const Kernels* best_kernels() { return usable_kernels().front(); }

}  // namespace inferno
