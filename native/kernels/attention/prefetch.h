// Prefetching of what a thread will read: it finds the panels of its tasks before their use. The
// first tile is prefetched at once.
#pragma once

#include "plan.h"
#include "rows.h"

namespace inferno {
namespace {

// Jobs are numbered task by task, head by head.
class Prefetcher {
   public:
    Prefetcher(const AttentionArgs& args, const Plan& plan, Index first_job, Index end_job)
        : args_(args), plan_(plan), job_(first_job), end_job_(end_job) {
        open_job();
        PanelRows first[kPanels];
        for (PanelRows& rows : first) find_next(rows);
        if (!args.cache.has_whole_keys()) return;
        for (const PanelRows& rows : first) prefetch(rows, args.cache.keys);
        for (const PanelRows& rows : first) prefetch(rows, args.cache.values);
    }

    // The next panel to prefetch, a tile before it is read; it has no rows after the last.
    void find_next(PanelRows& rows) {
        rows.count = 0;
        if (is_empty(positions_) && !open_next_job()) return;
        const Index end = min(positions_.end, positions_.begin / kLanes * kLanes + kLanes);
        const HeadCache head = {args_.cache, blocks_, job_ % args_.cache.kv_heads};
        for (Index n; positions_.begin < end; positions_.begin += n) {
            n = run_at(args_.cache, positions_.begin, end);
            Index at = head.row_at(positions_.begin) * args_.cache.head_dim;
            for (Index i = 0; i < n; ++i, at += args_.cache.head_dim) rows.at[rows.count++] = at;
        }
    }

   private:
    void prefetch(const PanelRows& rows, const void* keys_or_values) const {
        const auto* data = static_cast<const std::uint16_t*>(keys_or_values);
        for (Index row = 0; row < rows.count; ++row) {
            for (Index d = 0; d < args_.cache.head_dim; d += kWords) rows.prefetch(data, row, d);
        }
    }

    bool open_next_job() {
        if (job_ + 1 >= end_job_) return false;
        ++job_;
        open_job();
        return true;
    }

    void open_job() {
        const Task& task = plan_.tasks[job_ / args_.cache.kv_heads];
        const Span seen = seen_by(task.queries, args_.batch->window);
        positions_ = intersection(seen, {task.splits.begin * kSplit, task.splits.end * kSplit});
        blocks_ = args_.batch->block_tables + task.queries.request * args_.batch->table_width;
    }

    const AttentionArgs& args_;
    const Plan& plan_;
    Index job_;
    Index end_job_;
    Span positions_;  // of the job, that are still to be found
    const Index* blocks_;
};

}  // namespace
}  // namespace inferno
