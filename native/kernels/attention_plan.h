// Who computes what: an attention's work cut into tasks.
#pragma once

#include "attention_softmax.h"

namespace inferno {
namespace {

// Softmaxes are made over this many positions, from multiples of it on, and then merged in
// ascending order, whoever computed them: so one long request can keep all threads busy.
constexpr Index kSplit = 512;
// Rows of queries that share a tile: enough to pay for copying it, few enough to stay in L2.
constexpr Index kBlockRows = 64;
// What a block may need of memory for unmerged softmaxes.
constexpr Index kMostPartialRows = 2048;

struct Shape {
    Index group;  // query heads that share a key/value head
    Index kv_heads;
    Index head_dim;
    RowLayout layout;
    Index block_tokens;

    Index row_size() const { return layout.size(); }
};

inline Shape shape_of(const AttentionArgs& args) {
    const CacheView& cache = args.cache;
    const Index group = args.num_heads / cache.kv_heads;
    const Index unit = cache.has_whole_keys() ? kWords : kLanes;  // a register's values
    return {group, cache.kv_heads, cache.head_dim, {round_up(cache.head_dim, unit)},
            max(1, kBlockRows / group)};
}

// Some of a request's tokens, that one task computes for one key/value head.
struct Block {
    Index request;
    Index first_token;  // counted within the request's chunk
    Index num_tokens;
    Index first_position;  // of the first token
};

inline Span visible_from(Index position, Index window) {
    return {window > 0 ? max(0, position - window + 1) : 0, position + 1};
}

inline Span seen_by(const Block& block, Index window) {
    return {visible_from(block.first_position, window).begin,
            block.first_position + block.num_tokens};
}

inline Span splits_of(Span positions) {
    return {positions.begin / kSplit, (positions.end + kSplit - 1) / kSplit};
}

struct Task {
    Block block;
    Span splits;      // this task's
    Span all_splits;  // the block's
    Index partials;   // where its unmerged rows begin, counted in rows of one head; or -1
};

// Calls `f` with each block. A request's last come first: they see most.
template <class Function>
void for_each_block(const BatchView& batch, Index block_tokens, Function&& f) {
    for (Index request = 0; request < batch.num_requests; ++request) {
        const Index length = batch.query_starts[request + 1] - batch.query_starts[request];
        const Index start = batch.context_lens[request] - length;
        for (Index first = (length - 1) / block_tokens * block_tokens; first >= 0 && first < length;
             first -= block_tokens) {
            f(Block{request, first, min(block_tokens, length - first), start + first});
        }
    }
}

struct Plan {
    Task* tasks;
    Index num_tasks;
    Index num_partial_rows;  // of one head
};

// How many splits a task of this block takes.
inline Index splits_per_task(const Block& block, const Shape& shape, Index num_splits,
                             Index fair_share) {
    const Index rows = block.num_tokens * shape.group;
    const Index fair = max(1, fair_share / (rows * kSplit));
    return rows * num_splits > kMostPartialRows ? num_splits : fair;
}

// Fills plan.tasks, if it is given; counts in any case.
inline void plan_tasks(const BatchView& batch, const Shape& shape, Index fair_share, Plan& plan) {
    plan.num_tasks = plan.num_partial_rows = 0;
    for_each_block(batch, shape.block_tokens, [&](const Block& block) {
        const Span all = splits_of(seen_by(block, batch.window));
        const Index num_splits = all.end - all.begin;
        const Index step = splits_per_task(block, shape, num_splits, fair_share);
        const Index partials = step < num_splits ? plan.num_partial_rows : -1;
        for (Index first = all.begin; first < all.end; first += step) {
            const Span splits = {first, min(first + step, all.end)};
            if (plan.tasks) plan.tasks[plan.num_tasks] = {block, splits, all, partials};
            ++plan.num_tasks;
        }
        if (partials >= 0) plan.num_partial_rows += num_splits * block.num_tokens * shape.group;
    });
}

// A quarter of what each thread has to do, in scores.
inline Index fair_share_of(const BatchView& batch, const Shape& shape, int num_threads) {
    Index scores = 0;
    for_each_block(batch, shape.block_tokens, [&](const Block& block) {
        const Span seen = seen_by(block, batch.window);
        scores += (seen.end - seen.begin) * block.num_tokens * shape.group;
    });
    return scores * shape.kv_heads / (4 * num_threads);
}

}  // namespace
}  // namespace inferno
