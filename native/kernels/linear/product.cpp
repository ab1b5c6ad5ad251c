// Row blocks times panels of a weight: the loops around the tiles.
#include "product.h"

#include "matrix_product.h"
#include "outputs.h"
#include "row_tile.h"

namespace inferno::INFERNO_ISA {
namespace {

constexpr bool kHasManyRegisters = kFloatRows >= 24;

// How far a lone row block prefetches its panels, in bytes: far where tiles compute, nearer where
// they do little but read, because the processor's own prefetching is at work there too. Of 2, 3, 4,
// 5, 6 and 8 KiB, 4 was best for one row on a Xeon (of int8 3 % faster than 2, of other formats 7 to
// 14); on a Zen 4, 6 KiB instead of 2 took 1 to 4 % from int4.
constexpr Index kPrefetchBytes = 6144;
constexpr Index kNearPrefetchBytes = 4096;
constexpr Index kWidePrefetchBytes = 1024;

// Over so many rows a product of codes does little but read.
constexpr Index kFewRows = 2;

// Rows of codes that a tile of one panel takes. Measured on a Zen 4, of weights from memory: 3 to 7 rows
// of one panel at a time are 6 to 25 % faster than of two. A tile of 8 rows, where they go row by row,
// is up to 6 % faster than two of 4 rows and two panels, of 12 rows up to 4 % slower; of halves, which
// have more to convert, one of 16 is 3 to 10 % faster than two panels, over however many rows.
template <class Format>
constexpr int panel_rows() {
    if (!INFERNO_HAS_ROW_TILES || Format::kHasCodebook) return kCodeRows;
    return Format::kHasHalves ? 16 : 8;
}

// How many of a panel's row blocks share in prefetching the next panel. A choice: the more there
// are, the more time memory has, and the shorter are the runs that it is read in.
constexpr Index kMostSharers = 8;

// Bytes of rows that go over a panel before it is the next one's turn: half of a core's L2 cache.
// Measured: with 128 to 1024 KiB nothing is gained.
constexpr Index kRowsBytes = 512 << 10;

// How a weight is walked, vector by vector or scale group by scale group, and the shapes of its
// tiles: of kRows rows and one panel, or of kWideRows and kWide panels.
template <class Format, bool has_scales = Format::kHasScales>
struct Steps;

template <class Format>
struct Steps<Format, false> {
    static constexpr int kRows = kFloatRows;
    static constexpr int kWide = kHasManyRegisters ? kMostPanels : 2;
    static constexpr int kWideRows = kRows / kWide;
    static constexpr Index kWords = 1;
    static constexpr Index kCodeBytes = kVector;
    static constexpr Index kPacked = kVector;
    static constexpr Index scale_bytes(Index) { return 0; }
    static Index prefetch_bytes(Index rows) {
        return rows <= kWideRows ? kWidePrefetchBytes : kPrefetchBytes;
    }
    static Index num_blocks(Index num_rows) { return (num_rows + kRows - 1) / kRows; }
    // Over few rows memory answers faster when asked for several things.
    static bool is_wide(const PackedActivations& x) { return x.num_rows <= kWideRows; }

    template <int R, int P>
    static void run(const Tile& tile) {
        float_tile<ElementOf<Format::kType>, R, P>(tile);
    }
};

template <class Format>
struct Steps<Format, true> {
    static constexpr int kRows = panel_rows<Format>();
    static constexpr bool kHasRowTiles = INFERNO_HAS_ROW_TILES;
    static constexpr int kWide = kHasManyRegisters && !(kHasRowTiles && Format::kHasHalves) ? 2 : 1;
    static constexpr int kWideRows = kWide > 1 ? kCodeRows : kRows;
    static constexpr Index kWords = kGroupWords<Format>;
    static constexpr Index kCodeBytes = Codes<Format>::kBytes;
    static constexpr Index kPacked = kPackedBytes<Format>;
    static constexpr Index scale_bytes(Index count) { return Scales<Format>::bytes_of(count); }
    // Where codes are looked up tiles do more than read.
    static Index prefetch_bytes(Index rows) {
        return rows <= kFewRows && !Format::kHasCodebook ? kNearPrefetchBytes : kPrefetchBytes;
    }
    static Index num_blocks(Index num_rows) {
        const Index rows = num_rows > kRows && kWide > 1 ? kWideRows : kRows;
        return (num_rows + rows - 1) / rows;
    }
    // A lone row block reads panel by panel.
    static bool is_wide(const PackedActivations& x) { return kWide > 1 && x.num_blocks > 1; }

    template <int R, int P>
    static void run(const Tile& tile) {
#if INFERNO_HAS_ROW_TILES
        if constexpr (P == 1) return row_tile<Format, R>(tile);
#endif
        code_tile<Format, R, P>(tile);
    }
};

// Of the weight's panels from `panel` on, or of what they were unpacked to.
template <class Steps>
Tile tile_of(const Product& product, Index panel, const PanelParts& parts) {
    const auto place = [panel](const char* part, const void* data, Index stride) {
        return part ? part : static_cast<const char*>(data) + panel * stride;
    };
    Tile tile;
    tile.count = product.x.row_words / Steps::kWords;  // a unit is no whole step
    tile.codes_stride = tile.count * Steps::kCodeBytes;
    tile.scales_stride = Steps::scale_bytes(tile.count);
    tile.codes = place(parts.codes, product.weight.data, tile.codes_stride);
    tile.scales = place(parts.scales, product.weight.scales, tile.scales_stride);
    tile.prefetch_stride = tile.count * Steps::kPacked;
    return tile;
}

// What is prefetched meanwhile: by a lone row block what it reads soon, by several, in shares, the
// next panel, so that memory has all their time to answer.
struct Prefetch {
    const char* codes;
    Index sharers;
    Index share;  // bytes

    void place(Tile& tile, Index nth_block) const {
        tile.prefetch = nth_block < sharers ? codes + nth_block * share : nullptr;
        tile.prefetch_step = (kVector + sharers - 1) / sharers;
    }
};

Prefetch prefetch_of(const Product& product, const Tile& tile, Range panels, Index num_blocks,
                     Index lone_bytes) {
    const char* codes = static_cast<const char*>(product.weight.data);
    if (num_blocks == 1) return {codes + panels.begin * tile.prefetch_stride + lone_bytes, 1, 0};
    const Index sharers = min(num_blocks, kMostSharers);
    const char* next = codes + panels.end * tile.prefetch_stride;
    return {next, sharers, tile.prefetch_stride / sharers};
}

// The tile of so many rows, found among those of 1 to R.
template <class Steps, int R, int P>
void run_tile(Index rows, const Tile& tile) {
    if constexpr (R > 0) {
        if (rows < R) return run_tile<Steps, R - 1, P>(rows, tile);
        Steps::template run<R, P>(tile);
    }
}

// One panel, or kWide of them.
template <class Steps>
void multiply_panels(const Product& product, Range blocks, Range panels,
                     const PanelParts& parts) {
    alignas(64) float sums[max(Steps::kRows, Steps::kWideRows * Steps::kWide) * kPanel];
    Tile tile = tile_of<Steps>(product, panels.begin, parts);
    const Index lone_bytes = Steps::prefetch_bytes(product.x.rows(blocks.begin).size());
    const Prefetch prefetch = prefetch_of(product, tile, panels, blocks.size(), lone_bytes);
    const bool is_direct = are_outputs(product, panels);
    float* const outputs = static_cast<float*>(product.out.data) + panels.begin * kPanel;
    tile.sums = sums;
    tile.sums_row = is_direct ? product.out.stride : panels.size() * kPanel;
    tile.sums_panel = kPanel;
    tile.is_streaming = is_direct && is_streaming(product.out);
    for (Index b = blocks.begin; b < blocks.end; ++b) {
        const Range rows = product.x.rows(b);
        prefetch.place(tile, b - blocks.begin);
        tile.x = product.x.block(b);
        if (is_direct) tile.sums = outputs + rows.begin * product.out.stride;
        if (panels.size() == Steps::kWide) {
            run_tile<Steps, Steps::kWideRows, Steps::kWide>(rows.size(), tile);
        } else {
            run_tile<Steps, Steps::kRows, 1>(rows.size(), tile);
        }
        if (!is_direct) write_sums(product, rows, panels, sums);
    }
}

// A panel of the first half and its fellow of the second: by one tile, where it takes two panels of
// as many rows as one.
template <class Steps>
void multiply_pair(const Product& product, Range blocks, Index pair, const PanelParts& parts) {
    constexpr Index kRows = Steps::kRows;
    const bool is_one_tile = Steps::kWide == 2 && Steps::is_wide(product.x);
    alignas(64) float sums[2 * kRows * kPanel];
    Tile tile = tile_of<Steps>(product, pair, parts);
    const Index lone_bytes = Steps::prefetch_bytes(product.x.rows(blocks.begin).size());
    const Prefetch prefetch =
        prefetch_of(product, tile, {pair, pair + 1}, blocks.size(), lone_bytes);
    const Index half = num_panels(product.weight) / 2;
    if (!parts.codes) tile.codes_stride *= half;
    if (!parts.scales) tile.scales_stride *= half;
    tile.prefetch_stride *= half;
    tile.sums = sums;
    tile.sums_row = is_one_tile ? 2 * kPanel : kPanel;
    tile.sums_panel = kPanel;
    tile.is_streaming = false;
    for (Index b = blocks.begin; b < blocks.end; ++b) {
        const Range rows = product.x.rows(b);
        prefetch.place(tile, b - blocks.begin);
        tile.x = product.x.block(b);
        if (is_one_tile) {
            run_tile<Steps, Steps::kWideRows, 2>(rows.size(), tile);
            write_gated(product, rows, pair, sums, 2 * kPanel, kPanel);
        } else {
            run_tile<Steps, kRows, 1>(rows.size(), tile);
            Tile up = tile;
            up.codes += tile.codes_stride;
            up.scales += tile.scales_stride;
            if (up.prefetch) up.prefetch += tile.prefetch_stride;
            up.sums += kRows * kPanel;
            run_tile<Steps, kRows, 1>(rows.size(), up);
            write_gated(product, rows, pair, sums, kPanel, kRows * kPanel);
        }
    }
}

// `parts_of` says where one panel, or two, begin, if not in the weight.
template <class Steps, class PartsOf>
void multiply_all(const Product& product, Range blocks, Range panels, const PartsOf& parts_of) {
    const Index wide = Steps::is_wide(product.x) ? Steps::kWide : 1;
    const Index block_bytes = product.x.row_words * 4 * Steps::kRows;
    const Index most = max(1, kRowsBytes / max(1, block_bytes));
    const Index half = num_panels(product.weight) / 2;
    for (Index b = blocks.begin; b < blocks.end; b += most) {
        const Range some = {b, min(b + most, blocks.end)};
        if (product.gate) {
            for (Index p = panels.begin; p < panels.end; ++p) {
                multiply_pair<Steps>(product, some, p, parts_of(p, half + p));
            }
            continue;
        }
        for (Index p = panels.begin, count; p < panels.end; p += count) {
            count = panels.end - p >= wide ? wide : 1;
            multiply_panels<Steps>(product, some, {p, p + count}, parts_of(p, p + count - 1));
        }
    }
}

template <class Format, bool has_codes>
void multiply_unpacked(const Product& product, Range blocks, Range panels, Team& team,
                       int thread) {
    using Parts = Unpacking<Format, has_codes>;
    void* memory = team.scratch(thread, static_cast<std::size_t>(Parts::bytes(product.weight)));
    const Parts unpack = {product.weight, static_cast<char*>(memory)};
    multiply_all<Steps<Unpacked<Format, has_codes>>>(product, blocks, panels, unpack);
}

// The type that tiles multiply activations as.
template <class Format>
constexpr Type type_in_tiles() {
    if constexpr (Format::kHasScales) return Type::i8;
    else return Format::kType;
}

// Chunk by chunk, so that a chunk's words of all rows are written while they are in the L1 cache.
template <class Format, class X>
void pack_block(const Rows& x, const Index* index, Index num_inputs,
                const PackedActivations& packed, Index block) {
    const Range rows = packed.rows(block);
    const Index num_rows = rows.size();
    const auto* data = static_cast<const typename X::Raw*>(x.data);
    std::uint32_t* target = packed.block(block);
    alignas(64) std::uint32_t memory[kTogether][kChunk];
    for (Index i = 0; i < num_inputs; i += kChunk) {
        const Index width = min(num_inputs - i, kChunk);
        const Index num_words = words_of<Format>(width);
        const auto write = [&](Index nth, std::uint32_t* words) {
            const Index row = index ? index[rows.begin + nth] : rows.begin + nth;
            write_words<Format, X>(data + row * x.stride + i, width, words);
        };
        if (num_rows == 1) {
            write(0, target);
        } else {
            for (Index r = 0, count; r < num_rows; r += count) {
                count = r == 0 && num_rows % kTogether ? num_rows % kTogether : kTogether;
                for (Index n = 0; n < count; ++n) write(r + n, memory[n]);
                interleave_words(memory, count, num_words, target + r, num_rows);
            }
        }
        target += num_words * num_rows;
    }
    if constexpr (Format::kHasRowUnit) {
        for (Index r = 0; r < num_rows; ++r) {
            share_unit<Format>(packed.block(block) + r, num_rows, num_scale_groups(num_inputs));
        }
    }
}

}  // namespace

PackedActivations activations_for(const Weight& weight, Index num_rows, Type beside_codes) {
    if constexpr (kHasMatrixRegisters) {
        if (is_in_matrix(weight, beside_codes)) return matrix_activations_for(weight, num_rows);
    }
    return with_packing(weight.packing, [&](auto format) {
        using Format = decltype(format);
        return PackedActivations{nullptr, type_in_tiles<Format>(), num_rows,
                                 Steps<Format>::num_blocks(num_rows),
                                 row_words<Format>(weight.inputs)};
    });
}

void pack_activations(const Rows& x, const Index* index, const Weight& weight,
                      const PackedActivations& packed, Index block) {
    if constexpr (kHasMatrixRegisters) {
        if (is_in_matrix(weight, packed.type)) {
            return pack_matrix_activations(x, index, weight, packed, block);
        }
    }
    with_packing(weight.packing, [&](auto format) {
        with_activation_type(x.type, [&](auto type) {
            using Format = decltype(format);
            using X = decltype(type);
            pack_block<Format, X>(x, index, weight.inputs, packed, block);
        });
    });
}

void multiply(const Product& product, Range blocks, Range panels, Team& team, int thread) {
    if constexpr (kHasMatrixRegisters) {
        if (is_in_matrix(product.weight, product.x.type)) {
            return multiply_matrix(product, blocks, panels, team, thread);
        }
    }
    with_packing(product.weight.packing, [&](auto format) {
        using Format = decltype(format);
        if constexpr (Format::kHasScales) {
            constexpr Index kCodesFrom = codes_from_blocks<Format>();
            if constexpr (kCodesFrom > 0) {
                if (blocks.size() >= kCodesFrom) {
                    return multiply_unpacked<Format, true>(product, blocks, panels, team, thread);
                }
            }
            if constexpr (Scales<Format>::kAreEights && kCodesFrom != kPlainScalesFromBlocks) {
                if (blocks.size() >= kPlainScalesFromBlocks) {
                    return multiply_unpacked<Format, false>(product, blocks, panels, team, thread);
                }
            }
        }
        const auto none = [](Index, Index) { return PanelParts{nullptr, nullptr}; };
        multiply_all<Steps<Format>>(product, blocks, panels, none);
    });
    if (is_streaming(product.out)) _mm_sfence();  // nothing else orders streaming stores
}

}  // namespace inferno::INFERNO_ISA
