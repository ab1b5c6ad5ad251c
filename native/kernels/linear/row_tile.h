// A tile of one panel of codes that goes row by row: where the codes of a scale group fit the
// registers beside the sums of many rows, they are unpacked once for all of these.
#pragma once

#include "tiles.h"

#if defined(__AVX512F__) && INFERNO_HAS_BYTE_DOTS
#define INFERNO_HAS_ROW_TILES 1
#else
#define INFERNO_HAS_ROW_TILES 0
#endif

namespace inferno {
namespace {

#if INFERNO_HAS_ROW_TILES

// The dots of a row with vectors `begin` to `end` of a scale group, given the row's first word; its
// words are `stride` apart.
INFERNO_INLINE I row_dots(const I (&codes)[8], const std::uint32_t* x, Index stride, int begin,
                          int end, I sum) {
    INFERNO_UNROLL
    for (int w = begin; w < end; ++w) sum = dot4(sum, codes[w], x + w * stride);
    return sum;
}

// A row's sum with a scale group's part. `second` is the second half's scale, or the offset.
template <class Format>
INFERNO_INLINE F add_row(const I (&codes)[8], F scale, F second, const std::uint32_t* x,
                         Index stride, F sum) {
    const auto scale_word = static_cast<std::int32_t>(x[kGroupScale * stride]);
    const ActivationScale<Format::kHasRowUnit> factor(scale_word);
    const I start = start_of<Format>(x + kGroupStart * stride);
    if constexpr (Format::kHasHalves) {
        const I dots = row_dots(codes, x, stride, 0, 4, start);
        const I more = row_dots(codes, x, stride, 4, 8, word_of(x + kSecondStart * stride));
        return factor.add_to(sum, dots, scale, more, second);
    }
    sum = factor.add_to(sum, row_dots(codes, x, stride, 0, 8, start), scale);
    if constexpr (!Format::kHasOffset) return sum;
    return fma(as_float(word_of(x + kGroupSum * stride)), second, sum);
}

template <class Format, int R>
[[gnu::noinline]] void row_tile(const Tile& tile) {
    F sums[R][1];
    INFERNO_UNROLL
    for (int r = 0; r < R; ++r) sums[r][0] = zero();
    const std::uint32_t* x = tile.x;
    const char* codes = tile.codes;
    const char* next = tile.prefetch;
    Scales<Format> scales;
    for (Index g = 0; g < tile.count; ++g) {
        if (next) {
            next = prefetch_panels<1>(tile, next, kPackedBytes<Format> / kVector);
            prefetch_scales<Format, 1>(tile, g);
        }
        I group[8];
        INFERNO_UNROLL
        for (int pair = 0; pair < 4; ++pair) {
            Codes<Format>::load(codes, pair, group[2 * pair], group[2 * pair + 1]);
        }
        scales.begin(tile.scales, g, false);
        F scale, second = zero();
        if constexpr (Format::kHasHalves) {
            scale = scales.load(tile.scales, g, 0);
            second = scales.load(tile.scales, g, 1);
        } else {
            scale = scales.load(tile.scales, g);
            if constexpr (Format::kHasOffset) second = scales.load_offset(tile.scales, g);
        }
        INFERNO_UNROLL
        for (int r = 0; r < R; ++r) {
            F sum = add_row<Format>(group, scale, second, x + r, R, sums[r][0]);
            settle(sum);
            sums[r][0] = sum;
        }
        x += kGroupWords<Format> * R;
        codes += Codes<Format>::kBytes;
    }
    INFERNO_UNROLL
    for (int r = 0; r < R; ++r) sums[r][0] = in_units<Format>(sums[r][0], x + r);
    store_sums(tile, sums);
}

#endif

}  // namespace
}  // namespace inferno
