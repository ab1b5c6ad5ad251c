// The work of an attention, cut into tasks for threads.
#pragma once

#include "softmax.h"

namespace inferno {
namespace {

// Softmaxes are made over this many positions, from multiples of it on, and then merged in
// ascending order, whoever computed them: so one long request can keep all threads busy. A choice
// that bits depend on: shorter splits would be shared out better, and merged more often.
constexpr Index kSplit = 512;
// Rows of queries that share a tile: enough to pay for copying it, few enough to stay in L2.
constexpr Index kQueryBlockRows = 64;
// Rows of unmerged softmaxes that a query block may need. A choice: it bounds their memory.
constexpr Index kMostPartialRows = 2048;

struct Shape {
    Index heads_per_kv;  // query heads that share a key/value head
    Index kv_heads;
    Index head_dim;
    RowLayout layout;
    Index query_block_tokens;

    Index row_size() const { return layout.size(); }
};

inline Shape shape_of(const AttentionArgs& args) {
    const CacheView& cache = args.cache;
    const Index heads = args.num_heads / cache.kv_heads;
    const Index unit = cache.has_whole_keys() ? kWords : kLanes;  // a register's values
    return {heads, cache.kv_heads, cache.head_dim, {round_up(cache.head_dim, unit)},
            max(1, kQueryBlockRows / heads)};
}

// The queries of some of a request's tokens, which one task computes for one key/value head.
struct QueryBlock {
    Index request;
    Index first_token;  // counted within the request's chunk
    Index num_tokens;
    Index first_position;  // of the first token
};

inline Span visible_from(Index position, Index window) {
    return {window > 0 ? max(0, position - window + 1) : 0, position + 1};
}

inline Span seen_by(const QueryBlock& queries, Index window) {
    return {visible_from(queries.first_position, window).begin,
            queries.first_position + queries.num_tokens};
}

inline Span splits_of(Span positions) {
    return {positions.begin / kSplit, (positions.end + kSplit - 1) / kSplit};
}

struct Task {
    QueryBlock queries;
    Span splits;      // this task's
    Span all_splits;  // the query block's
    Index partials;   // where its unmerged rows begin, counted in rows of one head; or -1
};

// Calls `f` with each query block. A request's last come first: they see most.
template <class Function>
void for_each_query_block(const BatchView& batch, Index most_tokens, Function&& f) {
    for (Index request = 0; request < batch.num_requests; ++request) {
        const Index length = batch.query_starts[request + 1] - batch.query_starts[request];
        const Index start = batch.context_lens[request] - length;
        for (Index first = (length - 1) / most_tokens * most_tokens; first >= 0 && first < length;
             first -= most_tokens) {
            f(QueryBlock{request, first, min(most_tokens, length - first), start + first});
        }
    }
}

struct Plan {
    Task* tasks;
    Index num_tasks;
    Index num_partial_rows;  // of one head
};

// How many splits a task of this query block takes.
inline Index splits_per_task(const QueryBlock& queries, const Shape& shape, Index num_splits,
                             Index fair_share) {
    const Index rows = queries.num_tokens * shape.heads_per_kv;
    const Index fair = max(1, fair_share / (rows * kSplit));
    return rows * num_splits > kMostPartialRows ? num_splits : fair;
}

// Fills plan.tasks, if it is given; counts in any case.
inline void plan_tasks(const BatchView& batch, const Shape& shape, Index fair_share, Plan& plan) {
    plan.num_tasks = plan.num_partial_rows = 0;
    for_each_query_block(batch, shape.query_block_tokens, [&](const QueryBlock& queries) {
        const Span all = splits_of(seen_by(queries, batch.window));
        const Index num_splits = all.end - all.begin;
        const Index step = splits_per_task(queries, shape, num_splits, fair_share);
        const Index partials = step < num_splits ? plan.num_partial_rows : -1;
        for (Index first = all.begin; first < all.end; first += step) {
            const Span splits = {first, min(first + step, all.end)};
            if (plan.tasks) plan.tasks[plan.num_tasks] = {queries, splits, all, partials};
            ++plan.num_tasks;
        }
        if (partials < 0) return;
        plan.num_partial_rows += num_splits * queries.num_tokens * shape.heads_per_kv;
    });
}

// A quarter of what each thread has to do, in scores.
inline Index fair_share_of(const BatchView& batch, const Shape& shape, int num_threads) {
    Index scores = 0;
    for_each_query_block(batch, shape.query_block_tokens, [&](const QueryBlock& queries) {
        const Span seen = seen_by(queries, batch.window);
        scores += (seen.end - seen.begin) * queries.num_tokens * shape.heads_per_kv;
    });
    return scores * shape.kv_heads / (4 * num_threads);
}

}  // namespace
}  // namespace inferno
