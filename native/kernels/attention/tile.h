// Where the keys and values of 64 positions lie: in the cache itself, or copied and widened.
#pragma once

#include "contract/kernels.h"
#include "operands.h"

namespace inferno {
namespace {

constexpr Index kLanes = 16;
constexpr Index kTile = 64;  // tiles begin at multiples of it, and bits depend on it
constexpr Index kPanels = kTile / kLanes;

struct Span {
    Index begin, end;
};

template <int N>
struct Count {
    static constexpr int value = N;
};

inline bool is_empty(Span s) { return s.begin >= s.end; }
inline Span intersection(Span a, Span b) { return {max(a.begin, b.begin), min(a.end, b.end)}; }

// One factor of each position's scores, and of its values; or null.
struct Scales {
    const float* keys[kPanels];
    const float* values[kPanels];
};

// Sixteen positions are a panel. Only the panels that were opened have pointers. Where operands are
// pairs, a stride leads from one pair of dimensions, or of positions, to the next.
template <class E>
struct Tile {
    const typename E::Raw* keys[kPanels];    // dimensions are key_stride apart, positions adjacent
    const typename E::Raw* values[kPanels];  // positions are value_stride apart
    Index key_stride;
    Index value_stride;
    Scales scales;
    const char* next[kPanels];  // as many bytes of the next tile's keys as a panel of values has
};

// Room for a copied tile: keys [D][64], values [64][D], D rounded up, scales [64] and [64].
struct TileMemory {
    float* keys;
    float* values;
    float* key_scales;
    float* value_scales;
};

// Numbers of a tile's keys, or values, in its memory.
inline Index tile_size(Index head_dim) { return kTile * round_up(head_dim, kWords); }

// Into the second level: the first holds little more than a tile, which it would push out. Always
// inlined, for GCC may drop calls of a function that does nothing but prefetch.
[[gnu::always_inline]] inline void prefetch_line(const void* p) {
    _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T1);
}

// One request's keys and values of one head.
struct HeadCache {
    const CacheView& cache;
    const Index* blocks;
    Index kv_head;

    // Counted in heads of whole blocks.
    Index head_at(Index position) const {
        return blocks[position / cache.block_size] * cache.kv_heads + kv_head;
    }
    // Counted in positions.
    Index row_at(Index position) const {
        return head_at(position) * cache.block_size + position % cache.block_size;
    }
};

// Positions from `position` on that lie side by side, up to one register's.
inline Index run_at(const CacheView& cache, Index position, Index end) {
    return min(min(kLanes, end - position), cache.block_size - position % cache.block_size);
}

inline void copy_scales(const HeadCache& head, Index start, Span span, const TileMemory& memory) {
    const CacheView& cache = head.cache;
    for (Index p = span.begin, n; p < span.end; p += n) {
        n = run_at(cache, p, span.end);
        const Index row = head.row_at(p);
        store_part<F32>(memory.key_scales + (p - start), 0, n,
                        load_part<F32>(cache.key_scales + row, 0, n));
        store_part<F32>(memory.value_scales + (p - start), 0, n,
                        load_part<F32>(cache.value_scales + row, 0, n));
    }
}

template <class C>
void copy_keys(const HeadCache& head, Index start, Span span, float* keys) {
    const CacheView& cache = head.cache;
    const auto* data = static_cast<const typename C::Raw*>(cache.keys);
    for (Index p = span.begin, n; p < span.end; p += n) {
        n = run_at(cache, p, span.end);
        const Index block = head.head_at(p) * cache.block_size;
        const auto* from = data + block * cache.head_dim + p % cache.block_size;
        for (Index d = 0; d < cache.head_dim; ++d) {
            const F some = load_part<C>(from + d * cache.block_size, 0, n);
            store_part<F32>(keys + d * kTile + (p - start), 0, n, some);
        }
    }
}

template <class C>
void copy_values(const HeadCache& head, Index start, Span span, float* values) {
    const CacheView& cache = head.cache;
    const Index padded = round_up(cache.head_dim, kLanes);
    for (Index p = span.begin; p < span.end; ++p) {
        const Index row = head.row_at(p);
        const auto* from = static_cast<const typename C::Raw*>(cache.values) + row * cache.head_dim;
        float* to = values + (p - start) * padded;
        for (Index d = 0; d < padded; d += kLanes) {
            store(to + d, load_part<C>(from, d, cache.head_dim));
        }
    }
}

// `span` of the tile that begins at `start`, copied. The rest of `memory` holds anything.
template <class C>
Tile<Single<F32, false>> copy_tile(const HeadCache& head, Index start, Span span,
                            const TileMemory& memory) {
    const bool has_scales = head.cache.type == Type::i8;
    copy_keys<C>(head, start, span, memory.keys);
    copy_values<C>(head, start, span, memory.values);
    if (has_scales) copy_scales(head, start, span, memory);
    Tile<Single<F32, false>> tile;
    tile.key_stride = kTile;
    tile.value_stride = round_up(head.cache.head_dim, kLanes);
    for (Index panel = 0; panel < kPanels; ++panel) {
        const Index first = panel * kLanes;
        tile.keys[panel] = memory.keys + first;
        tile.values[panel] = memory.values + first * tile.value_stride;
        tile.scales.keys[panel] = has_scales ? memory.key_scales + first : nullptr;
        tile.scales.values[panel] = has_scales ? memory.value_scales + first : nullptr;
        tile.next[panel] = reinterpret_cast<const char*>(tile.values[panel]);
    }
    return tile;
}

// The same, read where it lies; `seen` goes on after the tile. Blocks must hold whole panels, and
// heads whole registers.
template <class C>
Tile<Single<C>> find_tile(const HeadCache& head, Index start, Span seen) {
    using Raw = typename C::Raw;
    const CacheView& cache = head.cache;
    const Raw* keys = static_cast<const Raw*>(cache.keys);
    const Raw* values = static_cast<const Raw*>(cache.values);
    const bool has_scales = cache.type == Type::i8;
    const Index last_panel = (seen.end - 1) / kLanes * kLanes;
    Tile<Single<C>> tile;
    tile.key_stride = cache.block_size;
    tile.value_stride = cache.head_dim;
    for (Index panel = max(0, seen.begin - start) / kLanes; panel < kPanels; ++panel) {
        const Index position = min(start + panel * kLanes, last_panel);
        const Index block = head.head_at(position) * cache.block_size;
        const Index offset = position % cache.block_size, row = block + offset;
        tile.keys[panel] = keys + block * cache.head_dim + offset;
        tile.values[panel] = values + row * cache.head_dim;
        tile.scales.keys[panel] = has_scales ? cache.key_scales + row : nullptr;
        tile.scales.values[panel] = has_scales ? cache.value_scales + row : nullptr;
        const Index next_row = head.row_at(min(position + kTile, last_panel));
        tile.next[panel] = reinterpret_cast<const char*>(keys + next_row * cache.head_dim);
    }
    return tile;
}

inline bool can_read_in_place(const CacheView& cache) {
    return cache.block_size % kLanes == 0 && cache.head_dim % kLanes == 0;
}

}  // namespace
}  // namespace inferno
