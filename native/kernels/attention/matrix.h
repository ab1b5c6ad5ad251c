// Attention's two products in matrix registers (simd/matrix_registers.h), over a bfloat16 cache:
// sixteen rows with the 64 positions of a tile.
//
// Keys are read where they lie, so scores come out turned, a column for each row; values are
// copied, pairs of positions side by side. A row's bits are the same whatever rows are beside it,
// for what it doesn't see has the weight 0, and counts as 0 even if it isn't finite.
#pragma once

#include "job.h"
#include "simd/matrix_registers.h"

#if defined(__AMX_BF16__)

namespace inferno {
namespace {

// Rows of a register: of queries, of positions, or of pairs of either.
constexpr Index kRegister = kRegisterRows;
// Positions whose weighted values are added at once.
constexpr Index kTogether = 2 * kRegister;

// What registers hold: 0 to 3 sums, 4 and 5 keys or weights, 6 and 7 queries or values.
constexpr int kLeft = 4, kRight = 6;

// Which shapes the registers have. With sixteen rows both products need the same ones.
class Shaped {
   public:
    void for_scores(Index rows) {
        if (!change(rows)) return;
        RegisterShapes shapes;
        for (int i = 0; i < 4; ++i) shapes.set(i, kRegister, 4 * rows);
        shapes.set(kLeft, kRegister, kRegisterBytes);
        shapes.set(kLeft + 1, kRegister, kRegisterBytes);
        shapes.set(kRight, kRegister, 4 * rows);
        shapes.set(kRight + 1, kRegister, kRegisterBytes);
        set_shapes(shapes);
    }

    void for_values(Index rows) {
        if (!change(rows == kRegister ? rows : -rows)) return;
        RegisterShapes shapes;
        for (int i = 0; i < 4; ++i) shapes.set(i, rows, kRegisterBytes);
        shapes.set(kLeft, rows, kRegisterBytes);
        shapes.set(kLeft + 1, rows, kRegisterBytes);
        shapes.set(kRight, kRegister, kRegisterBytes);
        shapes.set(kRight + 1, kRegister, kRegisterBytes);
        set_shapes(shapes);
    }

   private:
    bool change(Index to) {
        const bool is_new = to != now_;
        now_ = to;
        return is_new;
    }

    Index now_ = 0;
};

// Queries as columns: [rows / 16][D / 32][16 pairs][16 rows] words, both filled up with zeros.
inline void turn_queries(const std::uint16_t* queries, Index num_rows, Index head_dim,
                         std::uint32_t* columns) {
    const Index padded = round_up(head_dim, kWords);
    for (Index first = 0; first < num_rows; first += kRegister) {
        for (Index d = 0; d < head_dim; d += kWords) {
            I lanes[kRegister];
            for (Index r = 0; r < kRegister; ++r) {
                const std::uint16_t* from = queries + (first + r) * padded + d;
                lanes[r] = first + r >= num_rows    ? splat_int(0)
                           : d + kWords <= head_dim ? load_int(from)
                                                    : load_words_first(from, int(head_dim - d));
            }
            transpose(lanes);
            for (Index i = 0; i < kRegister; ++i) store_int(columns + i * kRegister, lanes[i]);
            columns += kRegister * kRegister;
        }
    }
}

// A tile's keys: where each panel's rows begin, and how many bytes they are apart.
struct KeyPanels {
    const std::uint16_t* at[kPanels];
    Index stride;
};

// In the cache, if a panel lies in one block and rows are whole registers; else copied. Positions
// outside of the span hold anything.
inline KeyPanels find_keys(const Source& keys, const CacheView& cache, std::uint16_t* copy) {
    const Index padded = round_up(keys.head_dim, kWords);
    const bool is_in_place = cache.block_size % kLanes == 0 && keys.head_dim == padded;
    const Span span = keys.rows.span;
    KeyPanels panels = {};
    panels.stride = 2 * padded;
    for (Index p = span.begin / kLanes * kLanes; p < span.end; p += kLanes) {
        const PanelRows& next = keys.next[p / kLanes];
        for (Index row = 0; row < kLanes; ++row) {
            for (Index d = 0; d < keys.head_dim; d += kWords) next.prefetch(keys.data, row, d);
        }
        if (is_in_place) {
            const Index first = max(p, span.begin);
            panels.at[p / kLanes] = keys.at(first, 0) - (first - p) * padded;
            continue;
        }
        for (Index row = p; row < p + kLanes; ++row) {
            for (Index d = 0; d < padded; d += kWords) {
                store_int(copy + row * padded + d, keys.load(row, d));
            }
        }
        panels.at[p / kLanes] = copy + p * padded;
    }
    return panels;
}

// The values of a tile's positions of which any may be weighed: [32 pairs][D][2]. Beside those in
// the span there are zeros, up to whole kTogether.
inline void copy_values(const Source& values, Span span, std::uint16_t* copy) {
    const Index padded = round_up(values.head_dim, kWords);
    const TileRows rows = [&] {
        TileRows some = values.rows;
        some.span = span;
        return some;
    }();
    const Source source = {values.data, rows, values.next, values.head_dim};
    const Index end = round_up(span.end, kTogether);
    for (Index p = span.begin / kTogether * kTogether; p < end; p += 2) {
        const bool has_any = rows.has(p) || rows.has(p + 1);
        for (Index d = 0; d < padded; d += kWords) {
            I low = splat_int(0), high = splat_int(0);
            if (has_any) source.load_two(p, d, low, high);
            store_int(copy + p * padded + 2 * d, low);
            store_int(copy + p * padded + 2 * d + kWords, high);
        }
    }
}

// Whether all values of these positions are finite.
inline bool are_finite(const Source& values, Span positions) {
    const __m512i exponent = _mm512_set1_epi16(0x7f80);
    for (Index p = positions.begin; p < positions.end; ++p) {
        for (Index d = 0; d < values.head_dim; d += kWords) {
            const __m512i bits = _mm512_and_si512(values.load(p, d).v, exponent);
            if (_mm512_cmpeq_epi16_mask(bits, exponent)) return false;
        }
    }
    return true;
}

// Scores of up to sixteen rows with the panels from `first` to `end`: [rows][64].
inline void score_panels(const KeyPanels& keys, Index first, Index end,
                         const std::uint32_t* columns, Index head_dim, Index num_rows,
                         float* scores) {
    alignas(64) float turned[kPanels][kRegister * kRegister];
    each<4>([&](auto panel) { clear_register<panel.value>(); });
    for (Index d = 0; d < head_dim; d += kWords, columns += kRegister * kRegister) {
        load_register<kRight>(columns, kRegisterBytes);
        each<4>([&](auto panel) {
            if (panel.value < first || panel.value >= end) return;
            constexpr int kKeys = kLeft + panel.value % 2;
            load_register<kKeys>(keys.at[panel.value] + d, keys.stride);
            add_products<panel.value, kKeys, kRight>();
        });
    }
    each<4>([&](auto panel) {
        store_register<panel.value>(turned[panel.value], kRegisterBytes);
    });
    for (Index panel = first; panel < end; ++panel) {
        I lanes[kRegister];
        for (Index i = 0; i < kRegister; ++i) {
            lanes[i] = load_int_aligned(turned[panel] + i * kRegister);
        }
        transpose(lanes);
        for (Index r = 0; r < num_rows; ++r) {
            store(scores + r * kTile + panel * kLanes, as_float(lanes[r]));
        }
    }
}

// rows += weights * values, over these positions of the tile, whole kTogether.
inline void add_weighed(const std::uint16_t* weights, const std::uint16_t* values, Span positions,
                        Index padded, float* rows, Index row_stride) {
    for (Index d = 0; d < padded; d += 4 * kLanes) {
        const Index count = min(4, (padded - d) / kLanes);
        const auto each_sum = [&](auto&& f) {
            each<4>([&](auto c) {
                if (c.value < count) f(c, d + c.value * kLanes);
            });
        };
        each_sum([&](auto c, Index at) { load_register<c.value>(rows + at, 4 * row_stride); });
        for (Index p = positions.begin; p < positions.end; p += kTogether) {
            load_register<kLeft>(weights + p, 2 * kTile);
            each_sum([&](auto c, Index at) {
                constexpr int kValues = kRight + c.value % 2;
                load_register<kValues>(values + p * padded + 2 * at, 4 * padded);
                add_products<c.value, kLeft, kValues>();
            });
        }
        each_sum([&](auto c, Index at) { store_register<c.value>(rows + at, 4 * row_stride); });
    }
}

// Take a tile into the softmaxes of a job's rows, sixteen at a time.
class AttendedTile {
   public:
    AttendedTile(const Job& job, Index start, const Source& keys, const Source& values,
                 const Workspace<BF16>& w)
        : job_(job),
          start_(start),
          values_(values),
          w_(w),
          copy_(reinterpret_cast<std::uint16_t*>(w.tile.values)),
          keys_(find_keys(keys, job.args.cache, reinterpret_cast<std::uint16_t*>(w.tile.keys))) {
        copy_values(values_, values_.rows.span, copy_);
    }

    // Rows from `first` on.
    void add_rows(Index first, Index num_rows, float* rows) {
        Span visible[kRegister], by_any = {kTile, 0}, by_all = {0, kTile};
        for (Index r = 0; r < num_rows; ++r) {
            const Span seen = job_.visible(first + r);
            visible[r] = intersection({seen.begin - start_, seen.end - start_}, {0, kTile});
            by_any = {min(by_any.begin, visible[r].begin), max(by_any.end, visible[r].end)};
            by_all = intersection(by_all, visible[r]);
        }
        if (is_empty(by_any)) return;
        const RowLayout& layout = job_.shape.layout;
        const Index head_dim = job_.shape.head_dim;
        shaped_.for_scores(num_rows);
        score_panels(keys_, by_any.begin / kLanes, (by_any.end + kLanes - 1) / kLanes,
                     w_.columns + first * layout.padded / 2, head_dim, num_rows, w_.scores);
        rows += first * layout.size();
        for (Index r = 0; r < num_rows; ++r) {
            std::uint16_t* weights = w_.weights + r * kTile;
            store_int(weights, splat_int(0));
            store_int(weights + kWords, splat_int(0));
            if (is_empty(visible[r])) continue;
            weigh<BF16>(layout, {}, visible[r], job_.args.scale, w_.scores + r * kTile, weights,
                        rows + r * layout.size());
        }
        const Span added = intersection(whole(by_any), values_.rows.span);
        if (is_empty(by_all)) by_all = {added.end, added.end};
        if (are_finite(values_, {added.begin, by_all.begin}) &&
            are_finite(values_, {by_all.end, added.end})) {
            return add_values(by_any, 0, num_rows, rows);
        }
        for (Index r = 0; r < num_rows; ++r) {
            if (is_empty(visible[r])) continue;
            copy_values(values_, visible[r], copy_);
            add_values(visible[r], r, 1, rows);
        }
        copy_values(values_, values_.rows.span, copy_);
    }

   private:
    // Positions that are added together with these.
    static Span whole(Span positions) {
        return {positions.begin / kTogether * kTogether, round_up(positions.end, kTogether)};
    }

    void add_values(Span visible, Index first, Index num_rows, float* rows) {
        const RowLayout& layout = job_.shape.layout;
        shaped_.for_values(num_rows);
        add_weighed(w_.weights + first * kTile, copy_, whole(visible), layout.padded,
                    rows + first * layout.size(), layout.size());
    }

    const Job& job_;
    Index start_;
    const Source& values_;
    const Workspace<BF16>& w_;
    std::uint16_t* copy_;
    KeyPanels keys_;
    Shaped shaped_;
};

}  // namespace
}  // namespace inferno

#endif
