// The processor's matrix registers (AMX), where it has them: 16 rows of 64 bytes each.
//
// A product of bfloat16 adds 32 terms to each sum: those of even and those of odd numbers apart, each
// fused in float32 in ascending order, which are then added up and to the sum. Denormals count as
// zero. No sum depends on the rows and columns beside it.
#pragma once

#include <cstdint>

namespace inferno {
namespace {

#if defined(__AMX_BF16__)
constexpr bool kHasMatrixRegisters = true;
#else
constexpr bool kHasMatrixRegisters = false;
#endif

}  // namespace
}  // namespace inferno

#if defined(__AMX_BF16__)

namespace inferno {
namespace {

constexpr std::int64_t kRegisterRows = 16;
constexpr std::int64_t kRegisterBytes = 64;  // of a row

// As the processor reads it (Intel's manual, LDTILECFG).
struct alignas(64) RegisterShapes {
    std::uint8_t palette = 1;
    std::uint8_t unused[15] = {};
    std::uint16_t row_bytes[16] = {};
    std::uint8_t rows[16] = {};

    void set(int number, std::int64_t num_rows, std::int64_t num_bytes) {
        row_bytes[number] = static_cast<std::uint16_t>(num_bytes);
        rows[number] = static_cast<std::uint8_t>(num_rows);
    }
};

// Not the compiler's own functions: theirs take the number of a register as text, and GCC's forget
// that all of the shapes are read.
inline void set_shapes(const RegisterShapes& shapes) {
    asm volatile("ldtilecfg %0" : : "m"(shapes));
}
inline void release_registers() { asm volatile("tilerelease"); }

template <int kTo>
inline void clear_register() {
    asm volatile("tilezero %%tmm%c0" : : "i"(kTo));
}

// Rows are `stride` bytes apart.
template <int kTo>
inline void load_register(const void* from, std::int64_t stride) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(stride), "i"(kTo) : "memory");
}

template <int kFrom>
inline void store_register(void* to, std::int64_t stride) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(to), "r"(stride), "i"(kFrom) : "memory");
}

// kSums[m][n] += the pairs of kRows[m] times the pairs n of all kColumns.
template <int kSums, int kRows, int kColumns>
inline void add_products() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0"
                 :
                 : "i"(kSums), "i"(kRows), "i"(kColumns));
}

template <int N>
struct Number {
    static constexpr int value = N;
};

// Call f with the numbers from 0 to N - 1.
template <int N, class Function>
[[gnu::always_inline]] inline void each(Function&& f) {
    if constexpr (N > 0) {
        each<N - 1>(f);
        f(Number<N - 1>{});
    }
}

}  // namespace
}  // namespace inferno

#endif
