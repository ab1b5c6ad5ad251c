// Where a tile's rows lie in a bfloat16 cache, and how they are read: 32 dimensions at once.
#pragma once

#include "tile.h"

namespace inferno {
namespace {

// Where keys and values of positions begin, counted in elements; those outside of `span` nowhere.
struct TileRows {
    Span span;
    Index at[kTile];

    bool has(Index position) const { return span.begin <= position && position < span.end; }
    bool has_all(Index begin, Index end) const { return span.begin <= begin && end <= span.end; }
};

inline void find_rows(const HeadCache& head, Index start, Span positions, TileRows& rows) {
    const CacheView& cache = head.cache;
    rows.span = {positions.begin - start, positions.end - start};
    Index block = positions.begin / cache.block_size, slot = positions.begin % cache.block_size;
    for (Index i = rows.span.begin; i < rows.span.end; ++block, slot = 0) {
        const Index heads = head.blocks[block] * cache.kv_heads + head.kv_head;
        Index at = (heads * cache.block_size + slot) * cache.head_dim;
        const Index end = min(rows.span.end, i + cache.block_size - slot);
        for (; i < end; ++i, at += cache.head_dim) rows.at[i] = at;
    }
}

// Where up to sixteen keys and values of one head begin that are read a tile later.
struct PanelRows {
    Index count;
    Index at[kLanes];

    void prefetch(const std::uint16_t* data, Index row, Index d) const {
        if (row < count) prefetch_line(data + at[row] + d);
    }
};

// A tile's keys or values in the cache. While they are read, what follows is prefetched: few
// reads of rows that lie apart fit into the processor's window, too few to keep the memory busy.
struct Source {
    const std::uint16_t* data;
    const TileRows& rows;
    const PanelRows* next;  // [kPanels]
    Index head_dim;

    const std::uint16_t* at(Index position, Index d) const {
        return data + rows.at[position] + d;
    }
    // Dimensions [d, d + 32) of a position, zeros where there is none.
    I load(Index position, Index d) const {
        if (!rows.has(position)) return splat_int(0);
        if (d + kWords <= head_dim) return load_int(at(position, d));
        return load_words_first(at(position, d), static_cast<int>(head_dim - d));
    }
    // Sixteen positions: lanes[i] holds pair d + 2i of each.
    void load_pairs(Index position, Index d, I lanes[kLanes]) const {
        for (Index i = 0; i < kLanes; ++i) next[position / kLanes].prefetch(data, i, d);
        if (rows.has_all(position, position + kLanes) && d + kWords <= head_dim) {
#pragma GCC unroll 16
            for (Index i = 0; i < kLanes; ++i) lanes[i] = load_int(at(position + i, d));
        } else {
            for (Index i = 0; i < kLanes; ++i) lanes[i] = load(position + i, d);
        }
        transpose(lanes);
    }
    // Two positions: a pair of each dimension.
    void load_two(Index position, Index d, I& low, I& high) const {
        const PanelRows& following = next[position / kLanes];
        following.prefetch(data, position % kLanes, d);
        following.prefetch(data, position % kLanes + 1, d);
        if (rows.has_all(position, position + 2) && d + kWords <= head_dim) {
            interleave(load_int(at(position, d)), load_int(at(position + 1, d)), low, high);
        } else {
            interleave(load(position, d), load(position + 1, d), low, high);
        }
    }
};

}  // namespace
}  // namespace inferno
