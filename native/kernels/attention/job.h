// One head's share of a task: whose rows they are, what they see, where they are read and written.
#pragma once

#include "prefetch.h"

namespace inferno {
namespace {

constexpr Index kDirectRows = 8;  // so many heads of one token, whose sums fit the registers
#if defined(__AMX_BF16__)
constexpr Index kScoredRows = kLanes;  // matrix.h
#else
constexpr Index kScoredRows = max(kPartsTogether * kRows, kDirectRows);
#endif

// One thread's memory for one task. Q is what queries and weights are held as.
template <class Q>
struct Workspace {
    typename Q::Raw* queries;  // [rows][D]
    typename Q::Raw* weights;  // [kScoredRows][64]
    float* scores;             // [kScoredRows][64]
    float* rows;               // [rows] softmaxes of one split
    float* totals;             // [rows] softmaxes of all splits
    std::uint32_t* columns;    // the queries as matrix.h takes them
    TileMemory tile;
};

// Counted as if all were floats.
inline Index workspace_size(const Shape& shape) {
    const Index rows = shape.query_block_tokens * shape.heads_per_kv;
    const Index tile = 2 * (tile_size(shape.head_dim) + kTile);
    const Index columns = round_up(rows, kLanes) * round_up(shape.head_dim, kWords) / 2;
    return rows * (shape.layout.padded + 2 * shape.row_size()) + columns +
           2 * kScoredRows * kTile + tile;
}

template <class Q>
Workspace<Q> cut_workspace(const Shape& shape, void* memory) {
    const Index rows = shape.query_block_tokens * shape.heads_per_kv;
    float* next = static_cast<float*>(memory);
    const auto take = [&next](Index count) {
        float* taken = next;
        next += count;
        return taken;
    };
    using Raw = typename Q::Raw;
    Workspace<Q> w;
    w.queries = reinterpret_cast<Raw*>(take(rows * shape.layout.padded));
    w.weights = reinterpret_cast<Raw*>(take(kScoredRows * kTile));
    w.scores = take(kScoredRows * kTile);
    w.rows = take(rows * shape.row_size());
    w.totals = take(rows * shape.row_size());
    const Index columns = round_up(rows, kLanes) * round_up(shape.head_dim, kWords) / 2;
    w.columns = reinterpret_cast<std::uint32_t*>(take(columns));
    w.tile.keys = take(tile_size(shape.head_dim));
    w.tile.values = take(tile_size(shape.head_dim));
    w.tile.key_scales = take(kTile);
    w.tile.value_scales = take(kTile);
    return w;
}

// One head's share of a task.
struct Job {
    const AttentionArgs& args;
    const Shape& shape;
    const QueryBlock& queries;
    Index kv_head;
    Prefetcher& prefetcher;

    Index num_rows() const { return queries.num_tokens * shape.heads_per_kv; }
    Index window() const { return args.batch->window; }
    // Rows are one token's heads, then the next token's.
    Span visible(Index row) const {
        return visible_from(queries.first_position + row / shape.heads_per_kv, window());
    }
    Index token(Index row) const {
        return args.batch->query_starts[queries.request] + queries.first_token +
               row / shape.heads_per_kv;
    }
    Index head(Index row) const { return kv_head * shape.heads_per_kv + row % shape.heads_per_kv; }
};

template <class Q>
void load_queries(const Job& job, typename Q::Raw* queries) {
    const Rows& q = job.args.q;
    const Index head_dim = job.shape.head_dim;
    with_activation_type(q.type, [&](auto e) {
        using E = decltype(e);
        for (Index row = 0; row < job.num_rows(); ++row) {
            const auto* from = static_cast<const typename E::Raw*>(q.data) +
                               job.token(row) * q.stride + job.head(row) * head_dim;
            auto* to = queries + row * job.shape.layout.padded;
            for (Index d = 0; d < head_dim; d += kLanes) {
                Q::store(to + d, load_part<E>(from, d, head_dim));
            }
        }
    });
}

inline void write_row(const Job& job, Index row, float* total) {
    const Rows& out = job.args.out;
    const Index head_dim = job.shape.head_dim;
    const F share = splat(1.0f / job.shape.layout.total(total));
    with_activation_type(out.type, [&](auto e) {
        using E = decltype(e);
        auto* to = static_cast<typename E::Raw*>(out.data) + job.token(row) * out.stride +
                   job.head(row) * head_dim;
        for (Index d = 0; d < head_dim; d += kLanes) {
            store_part<E>(to, d, head_dim, mul(load(total + d), share));
        }
    });
}

// A row before its first position: empty, or a sink, which is a score without a value.
inline void start_total(const Job& job, Index row, float* total) {
    const RowLayout& layout = job.shape.layout;
    open_row(layout, total);
    const Optional& sinks = job.args.sinks;
    if (!sinks.data) return;
    float sink[kLanes];
    store(sink, load_weights(sinks, job.head(row), job.head(row) + 1));
    layout.maximum(total) = sink[0];
    layout.total(total) = 1.0f;
}

}  // namespace
}  // namespace inferno
