// Causal attention over the paged cache, with windows and sinks.
#include "contract/isa_functions.h"
#include "direct.h"
#include "job.h"
#include "matrix.h"
#include "pairs.h"

namespace inferno::INFERNO_ISA {
namespace {

// From this many rows on a tile is widened once instead of at each use. A choice: the
// copy must be made up for.
constexpr Index kCopyFromRows = 16;

// Up to kRows rows from `first` on, and what they see of the tile that begins at `start`.
struct VisibleRows {
    Index first;
    Index num_rows;
    Span visible[kRows];  // counted within the tile
    Span by_any;
    Span by_all;
};

VisibleRows visible_rows(const Job& job, Index start, Index first, Index num_rows) {
    VisibleRows some = {first, num_rows, {}, {kTile, 0}, {0, kTile}};
    for (Index r = 0; r < num_rows; ++r) {
        const Span seen = job.visible(first + r);
        some.visible[r] = intersection({seen.begin - start, seen.end - start}, {0, kTile});
        some.by_any = {min(some.by_any.begin, some.visible[r].begin),
                       max(some.by_any.end, some.visible[r].end)};
        some.by_all = intersection(some.by_all, some.visible[r]);
    }
    if (is_empty(some.by_all)) some.by_all = {kTile, kTile};
    return some;
}

// What some rows see and others don't is added row by row: a hidden value has no part in a sum, not
// even with the weight 0, for it may be infinite.
template <class E>
void add_visible_values(const RowLayout& layout, const Tile<E>& tile, const VisibleRows& some,
                        const FactorOf<E>* weights, float* rows, Span columns) {
    const Span all = {round_up(some.by_all.begin, E::kCount),
                      some.by_all.end / E::kCount * E::kCount};
    const auto add_alone = [&](Index r, Index begin, Index end) {
        const ValueArgs<E> args = {tile, {begin, end}, weights + r * kTile,
                                   rows + r * layout.size(), layout.size()};
        add_to_row(args, columns);
    };
    for (Index r = 0; r < some.num_rows; ++r) {
        add_alone(r, some.visible[r].begin, min(some.visible[r].end, all.begin));
    }
    const ValueArgs<E> args = {tile, all, weights, rows, layout.size()};
    if (!is_empty(all)) add_values(args, some.num_rows, columns);
    for (Index r = 0; r < some.num_rows; ++r) {
        add_alone(r, max(some.visible[r].begin, all.end), some.visible[r].end);
    }
}

// A tile for rows in parts, whose scores and weights lie one after the other.
template <class E>
void add_tile_to_parts(const Job& job, const Tile<E>& tile, const VisibleRows* parts,
                       Index num_parts, const Workspace<typename E::Factor>& w, float* rows) {
    const RowLayout& layout = job.shape.layout;
    const Index first = parts[0].first;
    const bool are_many = num_parts > 1;
    const auto place = [&](Index row) { return (row - first) * kTile; };
    const Index panels = are_many ? kPanelsTogether : kPanels;
    for (Index panel = 0; panel < kPanels; panel += panels) {
        for (const VisibleRows* part = parts; part < parts + num_parts; ++part) {
            const Span seen = {part->by_any.begin / kLanes,
                               (part->by_any.end + kLanes - 1) / kLanes};
            const Span some = intersection(seen, {panel, panel + panels});
            if (is_empty(part->by_any) || is_empty(some)) continue;
            const ScoreArgs<E> args = {tile, w.queries + part->first * layout.padded,
                                       layout.padded, job.shape.head_dim,
                                       w.scores + place(part->first)};
            score(args, part->num_rows, some.begin, some.end);
        }
    }
    for (const VisibleRows* part = parts; part < parts + num_parts; ++part) {
        for (Index r = 0; r < part->num_rows; ++r) {
            const Index row = part->first + r;
            if (is_empty(part->visible[r])) continue;
            weigh<typename E::Factor>(layout, tile.scales, part->visible[r], job.args.scale,
                                      w.scores + place(row), w.weights + place(row),
                                      rows + row * layout.size());
        }
    }
    const Index columns = are_many ? kColumnsTogether : layout.padded;
    for (Index column = 0; column < layout.padded; column += columns) {
        for (const VisibleRows* part = parts; part < parts + num_parts; ++part) {
            if (is_empty(part->by_any)) continue;
            add_visible_values(layout, tile, *part, w.weights + place(part->first),
                               rows + part->first * layout.size(),
                               {column, min(column + columns, layout.padded)});
        }
    }
}

template <class E>
void add_tile(const Job& job, const Tile<E>& tile, Index start,
              const Workspace<typename E::Factor>& w, float* rows) {
    const Index num_rows = job.num_rows();
    const Index num_parts = (num_rows + kRows - 1) / kRows;
    const Index step = (num_rows + num_parts - 1) / num_parts;  // 8 rows are 4 and 4, not 6 and 2
    VisibleRows parts[kPartsTogether];
    for (Index first = 0; first < num_rows;) {
        Index count = 0;
        for (; count < kPartsTogether && first < num_rows; ++count, first += step) {
            parts[count] = visible_rows(job, start, first, min(step, num_rows - first));
        }
        add_tile_to_parts(job, tile, parts, count, w, rows);
    }
}

// A part of a request's positions, and where they lie.
struct Part {
    HeadCache head;
    Span here;
    Span seen;  // goes on after it
};

// Adds the tiles of a cache of type C.
template <class C>
struct Tiles {
    using Query = F32;

    static void begin(const Job&, const Workspace<F32>&) {}
    static void end() {}

    static void add(const Job& job, const Part& part, Index start, const Workspace<F32>& w,
                    float* rows) {
        const CacheView& cache = job.args.cache;
        const bool is_worth_a_copy = cache.type != Type::f32 && job.num_rows() >= kCopyFromRows;
        if (can_read_in_place(cache) && !is_worth_a_copy) {
            add_tile(job, find_tile<C>(part.head, start, part.seen), start, w, rows);
        } else {
            const Span span = intersection(part.here, {start, start + kTile});
            add_tile(job, copy_tile<C>(part.head, start, span, w.tile), start, w, rows);
        }
    }
};

template <>
struct Tiles<BF16> {
    using Query = BF16;

    static void begin([[maybe_unused]] const Job& job,
                      [[maybe_unused]] const Workspace<BF16>& w) {
#if defined(__AMX_BF16__)
        turn_queries(w.queries, job.num_rows(), job.shape.head_dim, w.columns);
#endif
    }

    static void end() {
#if defined(__AMX_BF16__)
        release_registers();
#endif
    }

    static void add(const Job& job, const Part& part, Index start, const Workspace<BF16>& w,
                    float* rows) {
        const CacheView& cache = job.args.cache;
        TileRows found;
        find_rows(part.head, start, intersection(part.here, {start, start + kTile}), found);
        PanelRows next[kPanels];
        for (Index panel = found.span.begin / kLanes; panel * kLanes < found.span.end; ++panel) {
            job.prefetcher.find_next(next[panel]);
        }
        const Source keys = {static_cast<const std::uint16_t*>(cache.keys), found, next,
                             cache.head_dim};
        const Source values = {static_cast<const std::uint16_t*>(cache.values), found, next,
                               cache.head_dim};
#if defined(__AMX_BF16__)
        AttendedTile tile(job, start, keys, values, w);
        for (Index first = 0; first < job.num_rows(); first += kLanes) {
            tile.add_rows(first, min(kLanes, job.num_rows() - first), rows);
        }
#else
        if (job.queries.num_tokens == 1 && job.num_rows() <= kDirectRows) {
            add_directly(job, keys, values, w, rows);
        } else {
            add_tile(job, copy_pairs(keys, values, w.tile), start, w, rows);
        }
#endif
    }

   private:
    static void add_directly(const Job& job, const Source& keys, const Source& values,
                             const Workspace<BF16>& w, float* rows) {
        const RowLayout& layout = job.shape.layout;
        const DirectArgs scores = {keys, w.queries, layout.padded, w.scores, kTile};
        const DirectArgs sums = {values, w.weights, kTile, rows, layout.size()};
        with_rows(job.num_rows(), [&](auto count) {
            constexpr int kCount = decltype(count)::value;
            score_directly<kCount>(scores);
            for (Index r = 0; r < kCount; ++r) {
                weigh<BF16>(layout, {}, keys.rows.span, job.args.scale, w.scores + r * kTile,
                            w.weights + r * kTile, rows + r * layout.size());
            }
            add_values_directly<kCount>(sums);
        });
    }
};

// The softmaxes of all rows over one split's positions.
template <class C>
void attend_split(const Job& job, Index split, const Workspace<typename Tiles<C>::Query>& w,
                  float* rows) {
    const RowLayout& layout = job.shape.layout;
    const BatchView& batch = *job.args.batch;
    const Span seen = seen_by(job.queries, job.window());
    const Part part = {
        {job.args.cache, batch.block_tables + job.queries.request * batch.table_width, job.kv_head},
        intersection(seen, {split * kSplit, (split + 1) * kSplit}),
        seen};
    for (Index r = 0; r < job.num_rows(); ++r) open_row(layout, rows + r * layout.size());
    for (Index start = part.here.begin / kTile * kTile; start < part.here.end; start += kTile) {
        Tiles<C>::add(job, part, start, w, rows);
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
void attend_splits(const Job& job, const Task& task, const Plan& plan, float* partials,
                   const Workspace<typename Tiles<C>::Query>& w) {
    if (task.partials >= 0) {
        for (Index split = task.splits.begin; split < task.splits.end; ++split) {
            attend_split<C>(job, split, w, rows_of_split(job, task, plan, partials, split));
        }
        return;
    }
    if (task.splits.end - task.splits.begin == 1 && !job.args.sinks.data) {  // nothing to merge
        attend_split<C>(job, task.splits.begin, w, w.rows);
        write_rows(job, w.rows);
        return;
    }
    start_totals(job, w.totals);
    for (Index split = task.splits.begin; split < task.splits.end; ++split) {
        attend_split<C>(job, split, w, w.rows);
        merge_split(job, w.totals, w.rows);
    }
    write_rows(job, w.totals);
}

template <class C>
void attend(const Job& job, const Task& task, const Plan& plan, float* partials, void* memory) {
    const auto w = cut_workspace<typename Tiles<C>::Query>(job.shape, memory);
    load_queries<typename Tiles<C>::Query>(job, w.queries);
    Tiles<C>::begin(job, w);
    attend_splits<C>(job, task, plan, partials, w);
    Tiles<C>::end();
}

// Once for each query block that was cut: by the first of its tasks.
void merge_query_block(const Job& job, const Task& task, const Plan& plan, float* partials,
                       void* memory) {
    if (task.partials < 0 || task.splits.begin != task.all_splits.begin) return;
    float* totals = static_cast<float*>(memory);
    start_totals(job, totals);
    for (Index split = task.all_splits.begin; split < task.all_splits.end; ++split) {
        merge_split(job, totals, rows_of_split(job, task, plan, partials, split));
    }
    write_rows(job, totals);
}

// A piece begins far from what its thread read last, so it should not be small; nor so large that
// threads wait for each other.
Index grain_of(const Shape& shape, Index num_jobs, Index num_threads) {
    const Index fair = (shape.kv_heads + num_threads - 1) / num_threads;
    return min(shape.kv_heads, max(fair, num_jobs / (8 * num_threads)));
}

}  // namespace

void attention(const AttentionArgs& args, Team& team) {
    const Shape shape = shape_of(args);
    const Index fair_share = fair_share_of(*args.batch, shape, team.num_threads());
    Plan plan = {nullptr, 0, 0};
    plan_tasks(*args.batch, shape, fair_share, plan);
    if (plan.num_tasks == 0) return;

    const Index task_bytes = round_up(plan.num_tasks * static_cast<Index>(sizeof(Task)), 64);
    const Index partial_bytes = plan.num_partial_rows * shape.kv_heads * shape.row_size() * 4;
    void* shared =
        team.scratch(team.num_threads(), static_cast<std::size_t>(task_bytes + partial_bytes));
    plan.tasks = static_cast<Task*>(shared);
    float* partials = reinterpret_cast<float*>(static_cast<char*>(shared) + task_bytes);
    plan_tasks(*args.batch, shape, fair_share, plan);

    const Index num_jobs = plan.num_tasks * shape.kv_heads;
    const Index grain = grain_of(shape, num_jobs, team.num_threads());
    const auto bytes = static_cast<std::size_t>(workspace_size(shape) * 4);
    const auto run = [&](auto&& f) {
        team.run(num_jobs, grain, [&](Index begin, Index end, int thread) {
            void* memory = team.scratch(thread, bytes);
            Prefetcher prefetcher(args, plan, begin, end);
            for (Index i = begin; i < end; ++i) {
                const Task& task = plan.tasks[i / shape.kv_heads];
                f(Job{args, shape, task.queries, i % shape.kv_heads, prefetcher}, task, memory);
            }
        });
    };
    with_cache_type(args.cache.type, [&](auto c) {
        run([&](const Job& job, const Task& task, void* memory) {
            attend<decltype(c)>(job, task, plan, partials, memory);
        });
    });
    if (plan.num_partial_rows == 0) return;
    run([&](const Job& job, const Task& task, void* memory) {
        merge_query_block(job, task, plan, partials, memory);
    });
}

}  // namespace inferno::INFERNO_ISA
