// The innermost loops: a block of rows times a few panels, sums in registers.
//
// Each output has one float sum, which grows in the order of the inputs; how many rows and panels
// go together changes nothing of it.
#pragma once

#include "group_dots.h"
#include "simd/matrix_registers.h"
#include "unpacked.h"

namespace inferno {
namespace {

// How many rows' sums the registers hold: there are 32 of 16 lanes, or 16 of 8. (Measured: 7 rows of
// two panels of codes give 370 GOP/s a core from the L2 cache, 12 rows of one panel 350. With AVX2 4
// rows of int4 give 192 GOP/s, 6 as many, 3 and 8 rows 171 and 155, 2 rows 155.)
#if defined(__AVX512F__)
constexpr int kFloatRows = 24;
constexpr int kCodeRows = 7;  // of two panels: int32 dots and float sums
#else
constexpr int kFloatRows = 4;
constexpr int kCodeRows = 4;  // where sums go through memory once a scale group
#endif

// Where a tile reads and writes.
struct Tile {
    const std::uint32_t* x;  // [words][R]
    Index count;             // of words, or of scale groups
    const char* codes;
    Index codes_stride;      // bytes from panel to panel
    const char* scales;
    Index scales_stride;
    float* sums;             // 16 of each row and panel
    Index sums_row;          // from row to row
    Index sums_panel;        // from panel to panel
    bool is_streaming;       // whether sums are written past the caches
    const char* prefetch;    // packed codes that are prefetched meanwhile; or null
    Index prefetch_step;     // bytes from vector to vector
    Index prefetch_stride;   // bytes from panel to panel
};

// Into which cache codes are prefetched, as compilers number it: 3 is L1, 2 is L2. (Measured on a Xeon
// with matrix registers, with L1: one and eight requests and a prompt take some 3 % less.)
constexpr int kCodesCache = kHasMatrixRegisters ? 3 : 2;

// GCC drops calls of functions that do nothing but prefetch, unless they are always inlined.

// Prefetch `points` places of each panel; where the next ones lie.
template <int P>
INFERNO_INLINE const char* prefetch_panels(const Tile& tile, const char* next, int points) {
    INFERNO_UNROLL
    for (int i = 0; i < points; ++i) {
        INFERNO_UNROLL
        for (int p = 0; p < P; ++p) {
            __builtin_prefetch(next + p * tile.prefetch_stride, 0, kCodesCache);
        }
        next += tile.prefetch_step;
    }
    return next;
}

// How far ahead scales that eight scale groups have together are prefetched, in eights. They are a
// few lines now and then, for which the processor's own prefetching comes late. Measured on a Xeon:
// products of 8 rows take 2 to 5 % less, of one row 1 to 2.
constexpr Index kEightsAhead = 4;

// Bring scales of each panel into the L2 cache, at the first of eight scale groups.
template <class Format, int P>
INFERNO_INLINE void prefetch_scales(const Tile& tile, Index group) {
    if constexpr (Scales<Format>::kAreEights) {
        if (group % 8 != 0) return;
        constexpr Index kBytes = Scales<Format>::bytes_of(8);
        const char* ahead = tile.scales + (group / 8 + kEightsAhead) * kBytes;
        INFERNO_UNROLL
        for (int p = 0; p < P; ++p) {
            for (Index line = 0; line < kBytes; line += kVector) {
                __builtin_prefetch(ahead + p * tile.scales_stride + line, 0, 2);
            }
        }
    }
}

template <int R, int P>
inline void store_sums(const Tile& tile, const F (&sums)[R][P]) {
    const auto store_by = [&](auto&& store_one) {
        INFERNO_UNROLL
        for (int i = 0; i < R * P; ++i) {
            float* const to = tile.sums + i / P * tile.sums_row + i % P * tile.sums_panel;
            store_one(to, sums[i / P][i % P]);
        }
    };
    if (tile.is_streaming) {
        store_by([](float* p, F a) { store_streaming(p, a); });
    } else {
        store_by([](float* p, F a) { store(p, a); });
    }
}

// R rows times P panels. Tiles are functions of their own: inlined into one, they'd share its
// registers.
template <class Element, int R, int P>
[[gnu::noinline]] void float_tile(const Tile& tile) {
    F sums[R][P];
    INFERNO_UNROLL
    for (int i = 0; i < R * P; ++i) sums[i / P][i % P] = zero();
    const std::uint32_t* x = tile.x;
    const char* codes = tile.codes;
    const char* next = tile.prefetch;
    for (Index w = 0; w < tile.count; ++w, x += R, codes += kVector) {
        if (next) next = prefetch_panels<P>(tile, next, 1);
        I weight[P];
        INFERNO_UNROLL
        for (int p = 0; p < P; ++p) {
            weight[p] = load_int_aligned(codes + p * tile.codes_stride);
        }
        INFERNO_UNROLL
        for (int r = 0; r < R; ++r) {
            const I word = splat_int(static_cast<std::int32_t>(x[r]));
            INFERNO_UNROLL
            for (int p = 0; p < P; ++p) sums[r][p] = Element::dot(sums[r][p], weight[p], word);
        }
    }
    store_sums(tile, sums);
}

// Add dots to the sums, given the scales of the panels.
template <class Format, int R, int P>
INFERNO_INLINE void add_dots(const std::uint32_t* x, const I (&dots)[R][P], const F (&scale)[P],
                             F (&sums)[R][P]) {
    INFERNO_UNROLL
    for (int r = 0; r < R; ++r) {
        const std::uint32_t word = x[kGroupScale * R + r];
        const ActivationScale<Format::kHasRowUnit> factor(static_cast<std::int32_t>(word));
        INFERNO_UNROLL
        for (int p = 0; p < P; ++p) {
            sums[r][p] = factor.add_to(sums[r][p], dots[r][p], scale[p]);
        }
    }
}

// R rows times P panels of codes. With two panels a word is loaded for two products, and not loads
// but products are what the processor is busy with.
template <class Format, int R, int P>
[[gnu::noinline]] void code_tile(const Tile& tile) {
    F sums[R][P];
    INFERNO_UNROLL
    for (int i = 0; i < R * P; ++i) sums[i / P][i % P] = zero();
    const std::uint32_t* x = tile.x;
    const char* codes = tile.codes;
    const char* next = tile.prefetch;
    Scales<Format> scales[P];
    for (Index g = 0; g < tile.count; ++g) {
        if (next) {
            next = prefetch_panels<P>(tile, next, kPackedBytes<Format> / kVector);
            prefetch_scales<Format, P>(tile, g);
        }
        I dots[R][P];
        F scale[P];
        const auto place = [&](int p) { return tile.scales + p * tile.scales_stride; };
        INFERNO_UNROLL
        for (int p = 0; p < P; ++p) scales[p].begin(place(p), g, false);
        if constexpr (kHasWholeHalves<Format>) {
            I words[2][P];
            INFERNO_UNROLL
            for (int p = 0; p < P; ++p) {
                words[0][p] = scales[p].load_words(place(p), g, 0);
                words[1][p] = scales[p].load_words(place(p), g, 1);
                scale[p] = scales[p].load_unit(place(p), g);
            }
            scaled_dots<Format>(x, codes, tile.codes_stride, words, dots);
            add_dots<Format>(x, dots, scale, sums);
        } else if constexpr (Format::kHasHalves) {
            INFERNO_UNROLL
            for (int half = 0; half < 2; ++half) {
                part_dots<Format>(x, codes, tile.codes_stride, 2 * half, 2,
                                  half ? kSecondStart : kGroupStart, dots);
                INFERNO_UNROLL
                for (int p = 0; p < P; ++p) scale[p] = scales[p].load(place(p), g, half);
                add_dots<Format>(x, dots, scale, sums);
            }
        } else {
            group_dots<Format>(x, codes, tile.codes_stride, dots);
            INFERNO_UNROLL
            for (int p = 0; p < P; ++p) scale[p] = scales[p].load(place(p), g);
            add_dots<Format>(x, dots, scale, sums);
        }
        if constexpr (Format::kHasOffset) {
            F offset[P];
            INFERNO_UNROLL
            for (int p = 0; p < P; ++p) offset[p] = scales[p].load_offset(place(p), g);
            INFERNO_UNROLL
            for (int i = 0; i < R * P; ++i) {
                const std::uint32_t sum = x[kGroupSum * R + i / P];
                const F total = as_float(splat_int(static_cast<std::int32_t>(sum)));
                sums[i / P][i % P] = fma(total, offset[i % P], sums[i / P][i % P]);
            }
        }
        x += kGroupWords<Format> * R;
        codes += Codes<Format>::kBytes;
    }
    INFERNO_UNROLL
    for (int i = 0; i < R * P; ++i) {
        sums[i / P][i % P] = in_units<Format>(sums[i / P][i % P], x + i / P);
    }
    store_sums(tile, sums);
}

}  // namespace
}  // namespace inferno
