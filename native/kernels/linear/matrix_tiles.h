// Tiles of bfloat16 in the processor's matrix registers (AMX): up to 32 rows times a few panels.
//
// Sums grow by 32 inputs at a time: those of the even inputs' products and those of the odd ones',
// each fused in float32 in the order of the inputs, are added up and then to the sum. Denormals
// count as zero. No row's sums depend on the rows beside it.
#pragma once

#include "codes.h"

#if defined(__AMX_BF16__)

namespace inferno {
namespace {

// A register holds 16 rows of 64 bytes: 16 words of as many rows, or as many vectors of a weight.
constexpr Index kRegisterRows = 16;
constexpr Index kRegisterWords = 16;

// What registers hold: 0 to 3 sums, 4 and 5 rows, 6 and 7 vectors of weights.
constexpr int kRowRegister = 4;
constexpr int kWeightRegister = 6;

// As the processor reads it (Intel's manual, LDTILECFG).
struct alignas(64) RegisterShapes {
    std::uint8_t palette = 1;
    std::uint8_t unused[15] = {};
    std::uint16_t row_bytes[16] = {};
    std::uint8_t rows[16] = {};

    void set(int number, int num_rows) {
        row_bytes[number] = 64;
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
inline void load_register(const void* from, Index stride) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(stride), "i"(kTo) : "memory");
}

template <int kFrom>
inline void store_register(void* to, Index stride) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(to), "r"(stride), "i"(kFrom) : "memory");
}

template <int kSums, int kRows, int kWeights>
inline void add_products() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0"
                 :
                 : "i"(kSums), "i"(kRows), "i"(kWeights));
}

template <int N>
struct Number {
    static constexpr int value = N;
};

// Call f with the numbers from 0 to N - 1.
template <int N, class Function>
INFERNO_INLINE void each(Function&& f) {
    if constexpr (N > 0) {
        each<N - 1>(f);
        f(Number<N - 1>{});
    }
}

// Where a tile reads and writes.
struct MatrixTile {
    const std::uint32_t* x;  // [words / 16][rows][16]; after a row's last word there are zeros
    Index rows;
    const char* codes;
    Index codes_stride;   // bytes from panel to panel
    Index count;          // of words, and of a panel's vectors
    bool is_first;        // whether sums begin here, or go on
    float* sums;          // [rows][panels][16]
    const char* prefetch;  // codes that are brought into the L2 cache meanwhile; or null
    Index prefetch_bytes;  // of each panel, while a register's words are multiplied
};

// Shape the registers for tiles of so many rows and panels.
template <int A, int P>
INFERNO_INLINE void shape_registers(Index rows) {
    RegisterShapes shapes;
    each<A>([&](auto a) {
        const Index left = rows - a.value * kRegisterRows;
        const int its_rows = static_cast<int>(min(left, kRegisterRows));
        each<P>([&](auto p) { shapes.set(a.value * P + p.value, its_rows); });
        shapes.set(kRowRegister + a.value, its_rows);
    });
    shapes.set(kWeightRegister, kRegisterRows);
    shapes.set(kWeightRegister + 1, kRegisterRows);
    set_shapes(shapes);
}

// Add the products of a register's words.
template <int A, int P>
INFERNO_INLINE void add_words(const std::uint32_t* x, const char* codes, Index codes_stride) {
    each<A>([&](auto a) {
        const std::uint32_t* rows = x + a.value * kRegisterRows * kRegisterWords;
        load_register<kRowRegister + a.value>(rows, kVector);
    });
    each<P>([&](auto p) {
        constexpr int kWeights = kWeightRegister + p.value;
        load_register<kWeights>(codes + p.value * codes_stride, kVector);
        each<A>([&](auto a) {
            add_products<a.value * P + p.value, kRowRegister + a.value, kWeights>();
        });
    });
}

// The last words of a panel, fewer than a register holds, and zeros after them.
template <int P>
struct LastVectors {
    alignas(64) char vectors[P][kRegisterRows * kVector];

    LastVectors(const char* codes, Index codes_stride, Index count) {
        for (int p = 0; p < P; ++p) {
            for (Index w = 0; w < kRegisterRows; ++w) {
                const char* from = codes + w * kVector;
                const F vector = w < count ? as_float(load_int_aligned(from)) : zero();
                store(reinterpret_cast<float*>(vectors[p] + w * kVector), vector);
            }
            codes += codes_stride;
        }
    }
};

// Rows that take A registers, times P panels. The registers are shaped for them.
template <int A, int P>
[[gnu::noinline]] void matrix_tile(const MatrixTile& tile) {
    static_assert(A * P <= kRowRegister && P <= 2);
    const auto each_sum = [&](auto&& f) {
        each<A>([&](auto a) {
            each<P>([&](auto p) {
                f(Number<a.value * P + p.value>{},
                  tile.sums + (a.value * kRegisterRows * P + p.value) * kPanel);
            });
        });
    };
    const Index row_bytes = P * kVector;
    if (tile.is_first) {
        each<A * P>([&](auto i) { clear_register<i.value>(); });
    } else {
        each_sum([&](auto i, float* sums) { load_register<i.value>(sums, row_bytes); });
    }
    const std::uint32_t* x = tile.x;
    const char* codes = tile.codes;
    const char* next = tile.prefetch;
    Index w = 0;
    for (; w + kRegisterWords <= tile.count; w += kRegisterWords) {
        if (next) {
            for (Index line = 0; line < tile.prefetch_bytes; line += kVector) {
                for (int p = 0; p < P; ++p) {
                    __builtin_prefetch(next + line + p * tile.codes_stride, 0, 2);
                }
            }
            next += tile.prefetch_bytes;
        }
        add_words<A, P>(x, codes, tile.codes_stride);
        x += tile.rows * kRegisterWords;
        codes += kRegisterRows * kVector;
    }
    if (w < tile.count) {
        const LastVectors<P> last(codes, tile.codes_stride, tile.count - w);
        add_words<A, P>(x, last.vectors[0], kRegisterRows * kVector);
    }
    each_sum([&](auto i, float* sums) { store_register<i.value>(sums, row_bytes); });
}

}  // namespace
}  // namespace inferno

#endif
