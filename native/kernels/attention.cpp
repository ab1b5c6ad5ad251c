// Causal attention over the paged cache, with windows and sinks.
#include "families.h"
#include "attention_plan.h"

namespace inferno::INFERNO_LEVEL {
namespace {

// From this many rows on it pays to widen a tile once instead of at each use.
constexpr Index kCopyFromRows = 16;

// One thread's memory for one task.
struct Workspace {
    float* queries;  // [rows][D], scaled
    float* rows;     // [rows] softmaxes of one split
    float* totals;   // [rows] softmaxes of all splits
    float* scores;   // [kRows][64]
    TileMemory tile;
};

Index workspace_floats(const Shape& shape) {
    const Index rows = shape.block_tokens * shape.group;
    const Index tile = kTile * (shape.head_dim + shape.layout.padded + 2);
    return rows * (shape.layout.padded + 2 * shape.row_size()) + kRows * kTile + tile;
}

Workspace cut_workspace(const Shape& shape, void* memory) {
    const Index rows = shape.block_tokens * shape.group;
    float* next = static_cast<float*>(memory);
    const auto take = [&next](Index count) {
        float* taken = next;
        next += count;
        return taken;
    };
    Workspace w;
    w.queries = take(rows * shape.layout.padded);
    w.rows = take(rows * shape.row_size());
    w.totals = take(rows * shape.row_size());
    w.scores = take(kRows * kTile);
    w.tile.keys = take(kTile * shape.head_dim);
    w.tile.values = take(kTile * shape.layout.padded);
    w.tile.key_scales = take(kTile);
    w.tile.value_scales = take(kTile);
    return w;
}

// One head's share of a task.
struct Job {
    const AttentionArgs& args;
    const Shape& shape;
    const Block& block;
    Index kv_head;

    Index num_rows() const { return block.num_tokens * shape.group; }
    Index window() const { return args.batch->window; }
    // Row r is head r % group of token r / group.
    Span visible(Index row) const {
        return visible_from(block.first_position + row / shape.group, window());
    }
    Index token(Index row) const {
        return args.batch->query_starts[block.request] + block.first_token + row / shape.group;
    }
    Index head(Index row) const { return kv_head * shape.group + row % shape.group; }
};

void load_queries(const Job& job, float* queries) {
    const Rows& q = job.args.q;
    const Index head_dim = job.shape.head_dim;
    with_activation_type(q.type, [&](auto e) {
        using E = decltype(e);
        for (Index row = 0; row < job.num_rows(); ++row) {
            const auto* from = static_cast<const typename E::Raw*>(q.data) +
                               job.token(row) * q.stride + job.head(row) * head_dim;
            float* to = queries + row * job.shape.layout.padded;
            for (Index d = 0; d < head_dim; d += kLanes) {
                store(to + d, mul(load_part<E>(from, d, head_dim), splat(job.args.scale)));
            }
        }
    });
}

void write_row(const Job& job, Index row, float* total) {
    const Rows& out = job.args.out;
    const Index head_dim = job.shape.head_dim;
    const F sum = splat(job.shape.layout.total(total));
    with_activation_type(out.type, [&](auto e) {
        using E = decltype(e);
        auto* to = static_cast<typename E::Raw*>(out.data) + job.token(row) * out.stride +
                   job.head(row) * head_dim;
        for (Index d = 0; d < head_dim; d += kLanes) {
            store_part<E>(to, d, head_dim, div(load(total + d), sum));
        }
    });
}

// A row before its first position: empty, or a sink, which is a score without a value.
void start_total(const Job& job, Index row, float* total) {
    const RowLayout& layout = job.shape.layout;
    open_row(layout, total);
    const Optional& sinks = job.args.sinks;
    if (!sinks.data) return;
    float sink[kLanes];
    store(sink, load_weights(sinks, job.head(row), job.head(row) + 1));
    layout.maximum(total) = sink[0];
    layout.total(total) = 1.0f;
}

// Up to kRows rows from `first` on, and what they see of the tile that begins at `start`.
struct Group {
    Index first;
    Index num_rows;
    Span visible[kRows];  // counted within the tile
    Span by_any;
    Span by_all;
};

Group group_of(const Job& job, Index start, Index first, Index num_rows) {
    Group g = {first, num_rows, {}, {kTile, 0}, {0, kTile}};
    for (Index r = 0; r < num_rows; ++r) {
        const Span seen = job.visible(first + r);
        g.visible[r] = intersection({seen.begin - start, seen.end - start}, {0, kTile});
        g.by_any = {min(g.by_any.begin, g.visible[r].begin), max(g.by_any.end, g.visible[r].end)};
        g.by_all = intersection(g.by_all, g.visible[r]);
    }
    if (is_empty(g.by_all)) g.by_all = {kTile, kTile};
    return g;
}

// What some rows see and others don't is added row by row: a hidden value has no part in a sum, not
// even with the weight 0, for it may be infinite.
template <class E>
void add_visible_values(const RowLayout& layout, const Tile<E>& tile, const Group& g,
                        const float* weights, float* rows) {
    const auto add_alone = [&](Index r, Span span) {
        if (is_empty(span)) return;
        const ValueArgs<E> args = {tile, span, weights + r * kTile, rows + r * layout.size(),
                                   layout.size()};
        add_values(args, 1, layout.padded);
    };
    for (Index r = 0; r < g.num_rows; ++r) {
        add_alone(r, {g.visible[r].begin, min(g.visible[r].end, g.by_all.begin)});
    }
    const ValueArgs<E> args = {tile, g.by_all, weights, rows, layout.size()};
    if (!is_empty(g.by_all)) add_values(args, g.num_rows, layout.padded);
    for (Index r = 0; r < g.num_rows; ++r) {
        add_alone(r, {max(g.visible[r].begin, g.by_all.end), g.visible[r].end});
    }
}

template <class E>
void add_tile_to_group(const Job& job, const Tile<E>& tile, const Group& g, const Workspace& w,
                       float* rows) {
    if (is_empty(g.by_any)) return;
    const RowLayout& layout = job.shape.layout;
    const ScoreArgs<E> args = {tile, w.queries + g.first * layout.padded, layout.padded,
                               job.shape.head_dim, w.scores};
    score(args, g.num_rows, g.by_any.begin / kLanes, (g.by_any.end + kLanes - 1) / kLanes);
    rows += g.first * layout.size();
    for (Index r = 0; r < g.num_rows; ++r) {
        if (is_empty(g.visible[r])) continue;
        weigh(layout, tile, g.visible[r], w.scores + r * kTile, rows + r * layout.size());
    }
    add_visible_values(layout, tile, g, w.scores, rows);
}

template <class E>
void add_tile(const Job& job, const Tile<E>& tile, Index start, const Workspace& w, float* rows) {
    const Index num_rows = job.num_rows();
    const Index num_groups = (num_rows + kRows - 1) / kRows;
    const Index step = (num_rows + num_groups - 1) / num_groups;  // 8 rows are 4 and 4, not 6 and 2
    for (Index first = 0; first < num_rows; first += step) {
        const Group g = group_of(job, start, first, min(step, num_rows - first));
        add_tile_to_group(job, tile, g, w, rows);
    }
}

// The softmaxes of all rows over one split's positions.
template <class C>
void attend_split(const Job& job, Index split, const Workspace& w, float* rows) {
    const RowLayout& layout = job.shape.layout;
    const BatchView& batch = *job.args.batch;
    const CacheView& cache = job.args.cache;
    const HeadCache head = {cache, batch.block_tables + job.block.request * batch.table_width,
                            job.kv_head};
    const bool is_in_place = can_read_in_place(cache) &&
                             (cache.type == Type::f32 || job.num_rows() < kCopyFromRows);
    const Span seen = seen_by(job.block, job.window());
    const Span here = intersection(seen, {split * kSplit, (split + 1) * kSplit});
    for (Index r = 0; r < job.num_rows(); ++r) open_row(layout, rows + r * layout.size());
    for (Index start = here.begin / kTile * kTile; start < here.end; start += kTile) {
        if (is_in_place) {
            add_tile(job, find_tile<C>(head, start, seen), start, w, rows);
        } else {
            const Span span = intersection(here, {start, start + kTile});
            add_tile(job, copy_tile<C>(head, start, span, w.tile), start, w, rows);
        }
    }
    for (Index r = 0; r < job.num_rows(); ++r) close_row(layout, rows + r * layout.size());
}

float* rows_of_split(const Job& job, const Task& task, const Plan& plan, float* partials,
                     Index split) {
    const Index part = (split - task.all_splits.begin) * job.num_rows() + task.partials;
    return partials + (job.kv_head * plan.num_partial_rows + part) * job.shape.row_size();
}

void merge_split(const Job& job, float* totals, float* rows) {
    const RowLayout& layout = job.shape.layout;
    for (Index r = 0; r < job.num_rows(); ++r) {
        merge_rows(layout, totals + r * layout.size(), rows + r * layout.size());
    }
}

void start_totals(const Job& job, float* totals) {
    for (Index r = 0; r < job.num_rows(); ++r) {
        start_total(job, r, totals + r * job.shape.row_size());
    }
}

void write_rows(const Job& job, float* totals) {
    for (Index r = 0; r < job.num_rows(); ++r) {
        write_row(job, r, totals + r * job.shape.row_size());
    }
}

template <class C>
void attend(const Job& job, const Task& task, const Plan& plan, float* partials,
            const Workspace& w) {
    load_queries(job, w.queries);
    if (task.partials >= 0) {
        for (Index split = task.splits.begin; split < task.splits.end; ++split) {
            attend_split<C>(job, split, w, rows_of_split(job, task, plan, partials, split));
        }
        return;
    }
    start_totals(job, w.totals);
    for (Index split = task.splits.begin; split < task.splits.end; ++split) {
        attend_split<C>(job, split, w, w.rows);
        merge_split(job, w.totals, w.rows);
    }
    write_rows(job, w.totals);
}

// Once for each block that was cut: by the first of its tasks.
void merge_block(const Job& job, const Task& task, const Plan& plan, float* partials,
                 const Workspace& w) {
    if (task.partials < 0 || task.splits.begin != task.all_splits.begin) return;
    start_totals(job, w.totals);
    for (Index split = task.all_splits.begin; split < task.all_splits.end; ++split) {
        merge_split(job, w.totals, rows_of_split(job, task, plan, partials, split));
    }
    write_rows(job, w.totals);
}

}  // namespace

void attention(const AttentionArgs& args, Pool& pool) {
    const Shape shape = shape_of(args);
    const Index fair_share = fair_share_of(*args.batch, shape, pool.num_threads());
    Plan plan = {nullptr, 0, 0};
    plan_tasks(*args.batch, shape, fair_share, plan);
    if (plan.num_tasks == 0) return;

    const Index task_bytes = round_up(plan.num_tasks * static_cast<Index>(sizeof(Task)), 64);
    const Index partial_bytes = plan.num_partial_rows * shape.kv_heads * shape.row_size() * 4;
    void* shared =
        pool.scratch(pool.num_threads(), static_cast<std::size_t>(task_bytes + partial_bytes));
    plan.tasks = static_cast<Task*>(shared);
    float* partials = reinterpret_cast<float*>(static_cast<char*>(shared) + task_bytes);
    plan_tasks(*args.batch, shape, fair_share, plan);

    const auto run = [&](auto&& f) {
        pool.run(plan.num_tasks * shape.kv_heads, 1, [&](Index begin, Index end, int thread) {
            const auto bytes = static_cast<std::size_t>(workspace_floats(shape) * 4);
            const Workspace w = cut_workspace(shape, pool.scratch(thread, bytes));
            for (Index i = begin; i < end; ++i) {
                const Task& task = plan.tasks[i / shape.kv_heads];
                f(Job{args, shape, task.block, i % shape.kv_heads}, task, w);
            }
        });
    };
    with_cache_type(args.cache.type, [&](auto c) {
        run([&](const Job& job, const Task& task, const Workspace& w) {
            attend<decltype(c)>(job, task, plan, partials, w);
        });
    });
    if (plan.num_partial_rows == 0) return;
    run([&](const Job& job, const Task& task, const Workspace& w) {
        merge_block(job, task, plan, partials, w);
    });
}

}  // namespace inferno::INFERNO_LEVEL
