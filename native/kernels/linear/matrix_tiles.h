// Tiles of bfloat16 in matrix registers: up to 32 rows times two panels.
#pragma once

#include "codes.h"
#include "simd/matrix_registers.h"

#if defined(__AMX_BF16__)

namespace inferno {
namespace {

// Words of a row in a register.
constexpr Index kRegisterWords = 16;

// What registers hold: 0 to 3 sums, 4 and 5 rows, 6 and 7 vectors of weights.
constexpr int kRowRegister = 4;
constexpr int kWeightRegister = 6;

// Where a tile reads and writes.
struct MatrixTile {
    const std::uint32_t* x;  // [words / 16][rows][16]; after a row's last word there are zeros
    Index rows;
    const char* codes;
    Index codes_stride;   // bytes from panel to panel
    Index codes_mask;     // what counts of the number of a register's vectors, which may take turns
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
        const Index its_rows = min(left, kRegisterRows);
        each<P>([&](auto p) { shapes.set(a.value * P + p.value, its_rows, kVector); });
        shapes.set(kRowRegister + a.value, its_rows, kVector);
    });
    shapes.set(kWeightRegister, kRegisterRows, kVector);
    shapes.set(kWeightRegister + 1, kRegisterRows, kVector);
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

struct DoNothing {
    void operator()(Index) const {}
};

// Rows that take A registers, times P panels. The registers are shaped for them. `prepare` is called
// for every 16 words in their order, so many of them ahead: then what it computes is done beside the
// products of those before, which other parts of the processor compute.
template <int A, int P, Index kAhead, class Prepare>
[[gnu::noinline]] void matrix_tile(const MatrixTile& tile, Prepare prepare) {
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
    const char* next = tile.prefetch;
    const auto codes_of = [&tile](Index step) {
        return tile.codes + (step & tile.codes_mask) * (kRegisterRows * kVector);
    };
    const Index steps = tile.count / kRegisterWords;
    for (Index step = 0; step < steps + kAhead; ++step) {
        if (step < steps) prepare(step);
        if (step < kAhead) continue;
        if (next) {
            for (Index line = 0; line < tile.prefetch_bytes; line += kVector) {
                for (int p = 0; p < P; ++p) {
                    __builtin_prefetch(next + line + p * tile.codes_stride, 0, 2);
                }
            }
            next += tile.prefetch_bytes;
        }
        add_words<A, P>(x, codes_of(step - kAhead), tile.codes_stride);
        x += tile.rows * kRegisterWords;
    }
    if (const Index left = tile.count % kRegisterWords; left > 0) {
        const LastVectors<P> last(codes_of(steps), tile.codes_stride, left);
        add_words<A, P>(x, last.vectors[0], kRegisterRows * kVector);
    }
    each_sum([&](auto i, float* sums) { store_register<i.value>(sums, row_bytes); });
}

}  // namespace
}  // namespace inferno

#endif
