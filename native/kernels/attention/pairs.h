// A tile of a bfloat16 cache copied for the queries of many tokens: pairs of dimensions of sixteen
// keys fill a register, and pairs of positions of sixteen dimensions of values.
#pragma once

#include "rows.h"

namespace inferno {
namespace {

// To [D/2][64][2].
inline void copy_key_pairs(const Source& keys, std::uint16_t* copy) {
    const Span span = keys.rows.span;
    for (Index p = span.begin / kLanes * kLanes; p < span.end; p += kLanes) {
        for (Index d = 0; d < keys.head_dim; d += kWords) {
            I lanes[kLanes];
            keys.load_pairs(p, d, lanes);
            std::uint16_t* to = copy + d * kTile + p * 2;
#pragma GCC unroll 16
            for (Index i = 0; i < kLanes; ++i) store_int(to + i * kTile * 2, lanes[i]);
        }
    }
}

// To [32][D][2], D rounded up to whole registers.
inline void copy_value_pairs(const Source& values, std::uint16_t* copy) {
    const Index padded = round_up(values.head_dim, kWords);
    const Span span = values.rows.span;
    for (Index p = span.begin / 2 * 2; p < span.end; p += 2) {
        for (Index d = 0; d < padded; d += kWords) {
            I low, high;
            values.load_two(p, d, low, high);
            store_int(copy + p * padded + 2 * d, low);
            store_int(copy + p * padded + 2 * d + kWords, high);
        }
    }
}

// Panels without rows hold anything.
inline Tile<Pair> copy_pairs(const Source& keys, const Source& values, const TileMemory& memory) {
    auto* copied_keys = reinterpret_cast<std::uint16_t*>(memory.keys);
    auto* copied_values = reinterpret_cast<std::uint16_t*>(memory.values);
    copy_key_pairs(keys, copied_keys);
    copy_value_pairs(values, copied_values);
    Tile<Pair> tile = {};
    tile.key_stride = 2 * kTile;
    tile.value_stride = 2 * round_up(keys.head_dim, kWords);
    for (Index panel = 0; panel < kPanels; ++panel) {
        tile.keys[panel] = copied_keys + 2 * panel * kLanes;
        tile.values[panel] = copied_values + panel * kLanes / 2 * tile.value_stride;
    }
    return tile;
}

}  // namespace
}  // namespace inferno
