// Attention's two products: queries with keys that lie transposed, weights with values. Both add
// term by term, or pair by pair, in ascending order, however many rows and columns are computed at
// once.
//
// What is read in the cache is prefetched: during the scores' product the tile's values,
// during the values' product the next tile's keys. Keys and values of a tile take equal shares of
// memory.
#pragma once

#include "tile.h"

namespace inferno {
namespace {

// How many rows are computed at once, and how many vectors of their columns: enough chains
// of fma to hide its latency, few loads for each, no more sums than there are registers.
#if defined(__AVX512F__)
constexpr int kRows = 6;
constexpr int columns_for(int rows) { return rows <= 2 ? 8 : 4; }
#else
constexpr int kRows = 2;
constexpr int columns_for(int rows) { return rows == 1 ? 4 : 2; }
#endif

// Where so few rows are computed at once, a tile in float32 that many rows see, twice as large as the
// L1 cache, would come from the L2 cache for each of them. So this many parts of kRows rows take their
// turns over some of its panels, and over some columns. (Measured with AVX2: a prompt's attention
// takes 4 to 11 % less.)
#if defined(__AVX512F__)
constexpr Index kPartsTogether = 1;
constexpr Index kPanelsTogether = kPanels;
#else
constexpr Index kPartsTogether = 32;
constexpr Index kPanelsTogether = 2;
#endif
constexpr Index kColumnsTogether = 32;

template <class E>
using FactorOf = typename E::Factor::Raw;

template <class E>
struct ScoreArgs {
    const Tile<E>& tile;
    const FactorOf<E>* queries;
    Index query_stride;
    Index head_dim;
    float* scores;  // [rows][64]
};

// Scores of R queries with V panels.
template <class E, int R, int V>
inline void score_panels(const ScoreArgs<E>& args, Index panel) {
    F sums[R][V];
    const typename E::Raw* keys[V];
    const char* values[V];
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) {
        keys[v] = args.tile.keys[panel + v];
        values[v] = reinterpret_cast<const char*>(args.tile.values[panel + v]);
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) sums[r][v] = zero();
    }
    const FactorOf<E>* q = args.queries;
    const FactorOf<E>* const end = q + args.head_dim;
    const Index query_stride = args.query_stride, key_stride = args.tile.key_stride;
    constexpr Index kStep = kLanes * E::kCount * size_in<E>();
    for (Index at = 0, near_at = 0; q < end; q += E::kCount, at += key_stride, near_at += kStep) {
        decltype(E::splat(q)) factors[R];
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) factors[r] = E::splat(q + r * query_stride);
#pragma GCC unroll 8
        for (int v = 0; v < V; ++v) {
            if (E::kIsInCache) prefetch_line(values[v] + near_at);
            auto key = E::load(keys[v] + at);
            settle(key);
#pragma GCC unroll 8
            for (int r = 0; r < R; ++r) sums[r][v] = E::add_product(sums[r][v], factors[r], key);
        }
    }
    float* const scores = args.scores + panel * kLanes;
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
        for (int v = 0; v < V; ++v) store(scores + r * kTile + v * kLanes, sums[r][v]);
    }
}

template <class E>
struct ValueArgs {
    const Tile<E>& tile;
    Span span;                   // of the tile's positions: whole pairs, where operands are pairs
    const FactorOf<E>* weights;  // [rows][64]
    float* rows;                 // to which weighted values are added
    Index row_stride;
};

// Columns from `column` on, 16 * V of them, of R rows.
template <class E, int R, int V>
inline void add_columns(const ValueArgs<E>& args, Index column) {
    F sums[R][V];
    float* const rows = args.rows + column;
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
        for (int v = 0; v < V; ++v) sums[r][v] = load(rows + r * args.row_stride + v * kLanes);
    }
    constexpr Index kRegister = kLanes * E::kCount;
    const Index stride = args.tile.value_stride;
    for (Index i = args.span.begin; i < args.span.end;) {
        const Index panel = i / kLanes;
        const Index first = i % kLanes / E::kCount * stride + column * E::kCount;
        const typename E::Raw* values = args.tile.values[panel] + first;
        const char* next = args.tile.next[panel] + first * size_in<E>();
        const Index end = min(args.span.end, (panel + 1) * kLanes);
        for (; i < end; i += E::kCount, values += stride, next += stride * size_in<E>()) {
            decltype(E::splat(args.weights)) factors[R];
#pragma GCC unroll 8
            for (int r = 0; r < R; ++r) factors[r] = E::splat(args.weights + r * kTile + i);
#pragma GCC unroll 8
            for (int v = 0; v < V; ++v) {
                if (E::kIsInCache && v * kRegister * size_in<E>() % 64 == 0) {  // a cache line
                    prefetch_line(next + v * kRegister * size_in<E>());
                }
                auto value = E::load(values + v * kRegister);
                settle(value);
#pragma GCC unroll 8
                for (int r = 0; r < R; ++r) {
                    sums[r][v] = E::add_product(sums[r][v], factors[r], value);
                }
            }
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
        for (int v = 0; v < V; ++v) store(rows + r * args.row_stride + v * kLanes, sums[r][v]);
    }
}

// One pair of which one position is hidden: its value may be infinite, so that it counts as zero.
// `position` is the visible one.
inline void add_half_pair(const ValueArgs<Pair>& args, Index position, Span columns) {
    const Index first = position / 2 * 2, panel = first / kLanes;
    const std::uint16_t* values =
        args.tile.values[panel] + first % kLanes / 2 * args.tile.value_stride;
    const I factors = Pair::splat(args.weights + first);
    const I visible = splat_int(position % 2 == 0 ? 0x0000ffff : static_cast<int>(0xffff0000));
    for (Index i = columns.begin; i < columns.end; i += kLanes) {
        const I terms = bit_and(Pair::load(values + 2 * i), visible);
        store(args.rows + i, Pair::add_product(load(args.rows + i), factors, terms));
    }
}

template <class E, int R>
void score_rows(const ScoreArgs<E>& args, Index first, Index end) {
    constexpr int kPanelsAtOnce = columns_for(R) < kPanels ? columns_for(R) : kPanels;
    for (; first + kPanelsAtOnce <= end; first += kPanelsAtOnce) {
        score_panels<E, R, kPanelsAtOnce>(args, first);
    }
    for (; first < end; ++first) score_panels<E, R, 1>(args, first);
}

template <class E, int R>
void add_rows(const ValueArgs<E>& args, Span columns) {
    constexpr int kMost = columns_for(R), kSome = kMost < 4 ? kMost : 4;
    const Index end = columns.end / kLanes;
    Index v = columns.begin / kLanes;
    for (; v + kMost <= end; v += kMost) add_columns<E, R, kMost>(args, v * kLanes);
    for (; v + kSome <= end; v += kSome) add_columns<E, R, kSome>(args, v * kLanes);
    for (; v < end; ++v) add_columns<E, R, 1>(args, v * kLanes);
}

// Scores of one to kRows queries with the panels from `first` to `end`.
template <class E>
inline void score(const ScoreArgs<E>& args, Index num_rows, Index first, Index end) {
    switch (num_rows) {
#if defined(__AVX512F__)
        case 6: return score_rows<E, 6>(args, first, end);
        case 5: return score_rows<E, 5>(args, first, end);
        case 4: return score_rows<E, 4>(args, first, end);
        case 3: return score_rows<E, 3>(args, first, end);
#endif
        case 2: return score_rows<E, 2>(args, first, end);
        default: return score_rows<E, 1>(args, first, end);
    }
}

// rows += weights * values, for one to kRows rows, in whole registers of columns.
template <class E>
inline void add_values(const ValueArgs<E>& args, Index num_rows, Span columns) {
    switch (num_rows) {
#if defined(__AVX512F__)
        case 6: return add_rows<E, 6>(args, columns);
        case 5: return add_rows<E, 5>(args, columns);
        case 4: return add_rows<E, 4>(args, columns);
        case 3: return add_rows<E, 3>(args, columns);
#endif
        case 2: return add_rows<E, 2>(args, columns);
        default: return add_rows<E, 1>(args, columns);
    }
}

// One row alone, with a span of any positions.
template <class C, bool is_in_cache>
inline void add_to_row(const ValueArgs<Single<C, is_in_cache>>& args, Span columns) {
    if (!is_empty(args.span)) add_values(args, 1, columns);
}

inline void add_to_row(const ValueArgs<Pair>& args, Span columns) {
    const Span span = args.span;
    if (is_empty(span)) return;
    ValueArgs<Pair> pairs = args;
    pairs.span = {round_up(span.begin, 2), span.end / 2 * 2};
    if (span.begin < pairs.span.begin) add_half_pair(args, span.begin, columns);
    if (!is_empty(pairs.span)) add_values(pairs, 1, columns);
    if (span.end > pairs.span.end) add_half_pair(args, span.end - 1, columns);
}

}  // namespace
}  // namespace inferno
