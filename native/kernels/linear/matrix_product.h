// Products of bfloat16 in matrix registers (matrix_tiles.h), where a processor has them.
//
// A pair of panels is multiplied with all row blocks by a part of the inputs at a time, whose
// vectors stay in the L1 cache; sums lie in a thread's memory meanwhile.
#pragma once

#include "matrix_tiles.h"
#include "outputs.h"
#include "simd/pairs.h"

namespace inferno::INFERNO_ISA {
namespace {

// How products with weights of these traits are computed here, if they are.
template <class Format, bool is_bf16 = !Format::kHasScales && Format::kBits == 16>
struct MatrixProduct {
    static constexpr bool kIsHere = false;
};

#if defined(__AMX_BF16__)

// Rows of a row block: two registers of them.
constexpr Index kMatrixRows = 2 * kRegisterRows;

// Words of the inputs that are multiplied at a time: of two panels, 16 KiB.
constexpr Index kPartWords = 8 * kRegisterWords;

// Bytes of rows that go over a pair of panels before it is the next one's turn: half of the L2
// cache of a processor with such registers.
constexpr Index kMatrixRowsBytes = 1 << 20;

// How far a lone row block prefetches its panels, in bytes. A choice: as far as the tiles of
// vectors do at most (product.cpp). One row reads at 93 to 99 % of a plain loop's speed with it.
constexpr Index kMatrixPrefetchBytes = 6144;

inline Index num_words(Index inputs) { return (inputs + 1) / 2; }

inline PackedActivations matrix_activations_for(const Weight& weight, Index num_rows) {
    const Index num_blocks = (num_rows + kMatrixRows - 1) / kMatrixRows;
    return {nullptr, num_rows, num_blocks, round_up(num_words(weight.inputs), kRegisterWords)};
}

// Sixteen words of a row from input i on; zeros where it has none.
template <class X>
INFERNO_INLINE void pack_words(const typename X::Raw* x, Index i, Index width,
                               std::uint32_t* words) {
    auto* elements = reinterpret_cast<typename BF16::Raw*>(words);
    if (i + 2 * kRegisterWords <= width) {
        if constexpr (sizeof(typename X::Raw) == 2) {  // bfloat16 too
            store_int(words, load_int(x + i));
        } else {
            BF16::store(elements, X::load(x + i));
            BF16::store(elements + 16, X::load(x + i + 16));
        }
        return;
    }
    store(reinterpret_cast<float*>(words), zero());
    for (Index at = i; at < width; at += 16) {
        store_part<BF16>(elements, at - i, width - i, load_part<X>(x, at, width));
    }
}

// A row block lies as [words / 16][rows][16].
template <class X>
void pack_matrix_block(const Rows& x, const Index* index, Index width,
                       const PackedActivations& packed, Index block) {
    const Range rows = packed.rows(block);
    const auto* data = static_cast<const typename X::Raw*>(x.data);
    for (Index nth = 0; nth < rows.size(); ++nth) {
        const Index row = index ? index[rows.begin + nth] : rows.begin + nth;
        std::uint32_t* target = packed.block(block) + nth * kRegisterWords;
        for (Index i = 0; i < width; i += 2 * kRegisterWords) {
            pack_words<X>(data + row * x.stride, i, width, target);
            target += rows.size() * kRegisterWords;
        }
    }
}

// The sums of P panels, `stride` bytes apart, and all rows of these blocks: [rows][P][16]. Those
// after them begin `next` bytes on.
template <int P>
void sum_panels(const Product& product, Range blocks, const char* codes, Index stride, Index next,
                float* sums) {
    const Index count = num_words(product.weight.inputs);
    const Index first_row = product.x.rows(blocks.begin).begin;
    const bool is_lone = blocks.size() == 1;
    MatrixTile tile;
    tile.codes_stride = stride;
    tile.prefetch_bytes = kRegisterRows * kVector / blocks.size();
    Index shaped_rows = 0;
    for (Index w = 0; w == 0 || w < count; w += kPartWords) {  // without inputs sums are zeros
        tile.count = min(kPartWords, count - w);
        tile.is_first = w == 0;
        tile.codes = codes + w * kVector;
        for (Index b = blocks.begin; b < blocks.end; ++b) {
            const Range rows = product.x.rows(b);
            tile.rows = rows.size();
            tile.x = product.x.block(b) + w * tile.rows;
            tile.sums = sums + (rows.begin - first_row) * P * kPanel;
            tile.prefetch = is_lone ? tile.codes + kMatrixPrefetchBytes
                                    : tile.codes + next +
                                          (b - blocks.begin) * tile.count * kVector / blocks.size();
            const bool is_shaped = tile.rows == shaped_rows;
            shaped_rows = tile.rows;
            if (tile.rows <= kRegisterRows) {
                if (!is_shaped) shape_registers<1, P>(tile.rows);
                matrix_tile<1, P>(tile);
            } else {
                if (!is_shaped) shape_registers<2, P>(tile.rows);
                matrix_tile<2, P>(tile);
            }
        }
    }
}

// The outputs of these row blocks, whose rows fit into the L2 cache.
inline void multiply_blocks(const Product& product, Range blocks, Range panels, float* sums) {
    const Index panel_bytes = num_words(product.weight.inputs) * kVector;
    const Range rows = {product.x.rows(blocks.begin).begin, product.x.rows(blocks.end - 1).end};
    const char* data = static_cast<const char*>(product.weight.data);
    if (product.gate) {
        const Index half = num_panels(product.weight) / 2;
        for (Index p = panels.begin; p < panels.end; ++p) {
            sum_panels<2>(product, blocks, data + p * panel_bytes, half * panel_bytes, panel_bytes,
                          sums);
            write_gated(product, rows, p, sums, 2 * kPanel, kPanel);
        }
        return;
    }
    for (Index p = panels.begin; p < panels.end; p += 2) {
        const Range its = {p, min(p + 2, panels.end)};
        const char* codes = data + p * panel_bytes;
        if (its.size() == 2) {
            sum_panels<2>(product, blocks, codes, panel_bytes, 2 * panel_bytes, sums);
        } else {
            sum_panels<1>(product, blocks, codes, panel_bytes, panel_bytes, sums);
        }
        write_sums(product, rows, its, sums);
    }
}

inline void multiply_matrix(const Product& product, Range blocks, Range panels, Team& team,
                            int thread) {
    const Index row_bytes = product.x.row_words * 4;
    const Index most = max(1, kMatrixRowsBytes / max(1, row_bytes * kMatrixRows));
    const Index sums_bytes = min(most, blocks.size()) * kMatrixRows * 2 * kVector;
    auto* sums = static_cast<float*>(team.scratch(thread, static_cast<std::size_t>(sums_bytes)));
    for (Index b = blocks.begin; b < blocks.end; b += most) {
        multiply_blocks(product, {b, min(b + most, blocks.end)}, panels, sums);
    }
    release_registers();
}

template <class Format>
struct MatrixProduct<Format, true> {
    static constexpr bool kIsHere = true;

    static PackedActivations activations_for(const Weight& weight, Index num_rows) {
        return matrix_activations_for(weight, num_rows);
    }

    template <class X>
    static void pack(const Rows& x, const Index* index, Index width,
                     const PackedActivations& packed, Index block) {
        pack_matrix_block<X>(x, index, width, packed, block);
    }

    static void multiply(const Product& product, Range blocks, Range panels, Team& team,
                         int thread) {
        multiply_matrix(product, blocks, panels, team, thread);
    }
};

#endif

}  // namespace
}  // namespace inferno::INFERNO_ISA
