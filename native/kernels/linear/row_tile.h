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

// A panel's scale group in registers.
template <class Format>
struct GroupVectors {
    I codes[8];
    F scale;
    F second;  // the second half's scale, or the offset

    INFERNO_INLINE GroupVectors(const char* group_codes, const Scales<Format>& scales,
                                const char* panel_scales, Index group) {
        INFERNO_UNROLL
        for (int pair = 0; pair < 4; ++pair) {
            Codes<Format>::load(group_codes, pair, codes[2 * pair], codes[2 * pair + 1]);
        }
        if constexpr (Format::kHasHalves) {
            scale = scales.load(panel_scales, group, 0);
            second = scales.load(panel_scales, group, 1);
        } else {
            scale = scales.load(panel_scales, group);
            if constexpr (Format::kHasOffset) second = scales.load_offset(panel_scales, group);
        }
    }

    // A row's sum with this group's part, given the first of its words, which are `stride` apart.
    INFERNO_INLINE F add_to(F sum, const std::uint32_t* x, Index stride) const {
        const auto scale_word = static_cast<std::int32_t>(x[kGroupScale * stride]);
        const ActivationScale<Format::kHasRowUnit> factor(scale_word);
        const I start = start_of<Format>(x + kGroupStart * stride);
        if constexpr (Format::kHasHalves) {
            const I more = dots(x, stride, 4, 8, word_of(x + kSecondStart * stride));
            return factor.add_to(sum, dots(x, stride, 0, 4, start), scale, more, second);
        }
        sum = factor.add_to(sum, dots(x, stride, 0, 8, start), scale);
        if constexpr (!Format::kHasOffset) return sum;
        return fma(as_float(word_of(x + kGroupSum * stride)), second, sum);
    }

   private:
    INFERNO_INLINE I dots(const std::uint32_t* x, Index stride, int begin, int end, I sum) const {
        INFERNO_UNROLL
        for (int w = begin; w < end; ++w) sum = dot4(sum, codes[w], word_of(x + w * stride));
        return sum;
    }
};

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
        scales.begin(tile.scales, g, false);
        const GroupVectors<Format> group(codes, scales, tile.scales, g);
        INFERNO_UNROLL
        for (int r = 0; r < R; ++r) {
            sums[r][0] = group.add_to(sums[r][0], x + r, R);
            settle(sums[r][0]);
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
