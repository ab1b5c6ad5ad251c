// Attention's two products for the heads of one token, which need each key and value once: pairs
// are made in registers, straight from the cache. The sums are those of multiply.h, bit
// by bit.
#pragma once

#include "job.h"

namespace inferno {
namespace {

// Heads of one token, which see all rows of a tile.
struct DirectArgs {
    const Source& source;          // keys or values
    const std::uint16_t* factors;  // queries or weights
    Index factor_stride;
    float* sums;  // scores [rows][64], or what weighted values are added to
    Index sum_stride;
};

template <int R>
void score_directly(const DirectArgs& args) {
    const Index head_dim = args.source.head_dim;
    const Span span = args.source.rows.span;
    for (Index p = span.begin / kLanes * kLanes; p < span.end; p += kLanes) {
        F sums[R];
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) sums[r] = zero();
        for (Index d = 0; d < head_dim; d += kWords) {
            I lanes[kLanes];
            args.source.load_pairs(p, d, lanes);
            const std::uint16_t* const q = args.factors + d;
            const Index num_pairs = min(kLanes, (head_dim - d + 1) / 2);
#pragma GCC unroll 16
            for (Index i = 0; i < kLanes; ++i) {
                if (i >= num_pairs) break;
#pragma GCC unroll 8
                for (int r = 0; r < R; ++r) {
                    const I factors = splat_pair(q + r * args.factor_stride + 2 * i);
                    sums[r] = dot2(sums[r], factors, lanes[i]);
                }
            }
        }
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) store(args.sums + r * args.sum_stride + p, sums[r]);
    }
}

// Dimensions from `d` on, 32 * C of them.
template <int R, int C>
void add_columns_directly(const DirectArgs& args, Index d) {
    F sums[R][2 * C];
    float* const rows = args.sums + d;
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
        for (int c = 0; c < 2 * C; ++c) sums[r][c] = load(rows + r * args.sum_stride + c * kLanes);
    }
    const Span span = args.source.rows.span;
    for (Index p = span.begin / 2 * 2; p < span.end; p += 2) {
#pragma GCC unroll 4
        for (int c = 0; c < C; ++c) {
            I low, high;
            args.source.load_two(p, d + c * kWords, low, high);
#pragma GCC unroll 8
            for (int r = 0; r < R; ++r) {
                const I weights = splat_pair(args.factors + r * args.factor_stride + p);
                sums[r][2 * c] = dot2(sums[r][2 * c], weights, low);
                sums[r][2 * c + 1] = dot2(sums[r][2 * c + 1], weights, high);
            }
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
        for (int c = 0; c < 2 * C; ++c) store(rows + r * args.sum_stride + c * kLanes, sums[r][c]);
    }
}

template <int R>
void add_values_directly(const DirectArgs& args) {
    constexpr int kMost = R <= 2 ? 4 : R <= 4 ? 2 : 1;
    const Index head_dim = args.source.head_dim;
    Index d = 0;
    for (; d + kMost * kWords <= head_dim; d += kMost * kWords) {
        add_columns_directly<R, kMost>(args, d);
    }
    for (; d < head_dim; d += kWords) add_columns_directly<R, 1>(args, d);
}

// Calls `f` with the count, 1 to kDirectRows, as a constant.
template <class Function>
inline void with_rows(Index num_rows, Function&& f) {
    switch (num_rows) {
        case 1: return f(Count<1>{});
        case 2: return f(Count<2>{});
        case 3: return f(Count<3>{});
        case 4: return f(Count<4>{});
        case 5: return f(Count<5>{});
        case 6: return f(Count<6>{});
        case 7: return f(Count<7>{});
        default: return f(Count<8>{});
    }
}

}  // namespace
}  // namespace inferno
