// Attention's two products in float32: queries with keys that lie transposed, weights with values.
// Both add term by term in ascending order, however many rows and columns are computed at once.
//
// Each brings near what will be read next: the scores' product the tile's values, the values'
// product the next tile's keys. Keys and values of a tile take equal shares of memory.
#pragma once

#include "attention_tile.h"

namespace inferno {
namespace {

// How many rows are computed at once, and how many groups of sixteen columns of them: enough chains
// of fma to hide its latency, few loads for each, no more sums than there are registers.
#if defined(__AVX512F__)
constexpr int kRows = 6;
constexpr int columns_for(int rows) { return rows <= 2 ? 8 : 4; }
#else
constexpr int kRows = 2;
constexpr int columns_for(int rows) { return rows == 1 ? 4 : 2; }
#endif

// Into the second level: the first holds little more than a tile, which it would push out.
inline void bring_near(const char* p) { _mm_prefetch(p, _MM_HINT_T1); }

template <class E>
struct ScoreArgs {
    const Tile<E>& tile;
    const float* queries;
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
    const float* q = args.queries;
    const float* const end = q + args.head_dim;
    const Index query_stride = args.query_stride, key_stride = args.tile.key_stride;
    constexpr Index kStep = kLanes * size_in<E>();
    for (Index at = 0, near_at = 0; q < end; ++q, at += key_stride, near_at += kStep) {
        F factors[R];
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) factors[r] = splat(q[r * query_stride]);
#pragma GCC unroll 8
        for (int v = 0; v < V; ++v) {
            bring_near(values[v] + near_at);
            const F key = E::load(keys[v] + at);
#pragma GCC unroll 8
            for (int r = 0; r < R; ++r) sums[r][v] = fma(factors[r], key, sums[r][v]);
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
    Span span;             // of the tile's positions
    const float* weights;  // [rows][64]
    float* rows;           // to which weighted values are added
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
    const Index stride = args.tile.value_stride;
    for (Index i = args.span.begin; i < args.span.end;) {
        const Index panel = i / kLanes;
        const Index first = i % kLanes * stride + column;
        const typename E::Raw* values = args.tile.values[panel] + first;
        const char* next = args.tile.next[panel] + first * size_in<E>();
        const Index end = min(args.span.end, (panel + 1) * kLanes);
        for (; i < end; ++i, values += stride, next += stride * size_in<E>()) {
            F factors[R];
#pragma GCC unroll 8
            for (int r = 0; r < R; ++r) factors[r] = splat(args.weights[r * kTile + i]);
#pragma GCC unroll 8
            for (int v = 0; v < V; ++v) {
                if (v * kLanes * size_in<E>() % 64 == 0) {  // a cache line
                    bring_near(next + v * kLanes * size_in<E>());
                }
                const F value = E::load(values + v * kLanes);
#pragma GCC unroll 8
                for (int r = 0; r < R; ++r) sums[r][v] = fma(factors[r], value, sums[r][v]);
            }
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
        for (int v = 0; v < V; ++v) store(rows + r * args.row_stride + v * kLanes, sums[r][v]);
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
void add_rows(const ValueArgs<E>& args, Index width) {
    constexpr int kMost = columns_for(R), kSome = kMost < 4 ? kMost : 4;
    const Index num_columns = width / kLanes;
    Index v = 0;
    for (; v + kMost <= num_columns; v += kMost) add_columns<E, R, kMost>(args, v * kLanes);
    for (; v + kSome <= num_columns; v += kSome) add_columns<E, R, kSome>(args, v * kLanes);
    for (; v < num_columns; ++v) add_columns<E, R, 1>(args, v * kLanes);
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

// rows += weights * values, for one to kRows rows of `width` columns, a multiple of sixteen.
template <class E>
inline void add_values(const ValueArgs<E>& args, Index num_rows, Index width) {
    switch (num_rows) {
#if defined(__AVX512F__)
        case 6: return add_rows<E, 6>(args, width);
        case 5: return add_rows<E, 5>(args, width);
        case 4: return add_rows<E, 4>(args, width);
        case 3: return add_rows<E, 3>(args, width);
#endif
        case 2: return add_rows<E, 2>(args, width);
        default: return add_rows<E, 1>(args, width);
    }
}

}  // namespace
}  // namespace inferno
