// Products in matrix registers: the loops around the tiles (matrix_tiles.h).
//
// A pair of panels is multiplied with all row blocks by a part of the inputs at a time, whose
// vectors stay in the L1 cache; sums lie in a thread's memory meanwhile. Codes of a part become
// bfloat16 there too (matrix_codes.h). For a lone row block all inputs are one part: its sums stay
// in the registers, and what is unpacked for it is soon written over.
#include "matrix_product.h"

#if defined(__AMX_BF16__)

#include "matrix_codes.h"
#include "matrix_tiles.h"
#include "outputs.h"
#include "simd/pairs.h"

namespace inferno::INFERNO_ISA {
namespace {

// Rows of a row block: two registers of them.
constexpr Index kMatrixRows = 2 * kRegisterRows;

// Words of the inputs that are multiplied at a time: of two panels, 16 KiB.
constexpr Index kPartWords = 8 * kRegisterWords;

// Registers' vectors of a panel that are kept while codes are unpacked for a lone row block. A
// choice: of 2, 4 and 8 none is faster.
constexpr Index kKeptVectors = 4;

// Bytes of rows that go over a pair of panels before it is the next one's turn: half of the L2
// cache of a processor with such registers.
constexpr Index kMatrixRowsBytes = 1 << 20;

// How far a lone row block prefetches its panels, in bytes. A choice: as far as the tiles of
// vectors do at most (product.cpp). One row reads at 93 to 99 % of a plain loop's speed with it.
constexpr Index kMatrixPrefetchBytes = 6144;

Index num_words(Index inputs) { return (inputs + 1) / 2; }

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
void pack_block(const Rows& x, const Index* index, Index width, const PackedActivations& packed,
                Index block) {
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

// The panels of a tile, and those that the thread takes after them, which are prefetched meanwhile.
template <int P>
struct TilePanels {
    Index panels[P];
    Index next[P];
};

// Which words of a tile's panels are multiplied, and which of the row blocks with them.
struct Part {
    Index first_word;
    Index num_words;
    bool is_last;
    Index nth_block;
    Index num_blocks;
};

// Where the vectors of a tile come from, and what is done beside its products: two classes. These
// are vectors of bfloat16, multiplied where they lie.
class StoredVectors {
   public:
    StoredVectors(const Weight& weight, char*)
        : data_(static_cast<const char*>(weight.data)),
          panel_bytes_(num_words(weight.inputs) * kVector) {}

    static constexpr Index kMemory = 0;  // bytes

    // Where the vectors of a part lie.
    template <int P>
    void place(MatrixTile& tile, const TilePanels<P>& of, const Part& part) const {
        tile.codes = data_ + of.panels[0] * panel_bytes_ + part.first_word * kVector;
        tile.codes_stride = (of.panels[P - 1] - of.panels[0]) * panel_bytes_;
        tile.codes_mask = -1;
        tile.prefetch_bytes = kRegisterRows * kVector / part.num_blocks;
    }

    // A lone row block prefetches what it reads soon; several prefetch, in shares, the next panels,
    // so that memory has all their time to answer.
    template <int A, int P>
    void multiply(MatrixTile& tile, const TilePanels<P>& of, const Part& part) const {
        tile.prefetch = tile.codes + kMatrixPrefetchBytes;
        if (part.num_blocks > 1) {
            const Index skipped = part.nth_block * part.num_words * kVector / part.num_blocks;
            tile.prefetch = data_ + of.next[0] * panel_bytes_ + part.first_word * kVector + skipped;
        }
        matrix_tile<A, P, 0>(tile, DoNothing{});
    }

   private:
    const char* data_;
    Index panel_bytes_;
};

// Vectors of codes are made bfloat16 a part at a time, beside the products of the first row block;
// those of the others find them, if there are others.
template <class Format>
class UnpackedVectors {
   public:
    UnpackedVectors(const Weight& weight, char* memory)
        : codes_(static_cast<const char*>(weight.data)),
          scales_(static_cast<const char*>(weight.scales)),
          num_groups_(num_scale_groups(weight.inputs)),
          memory_(memory) {}

    static constexpr Index kMemory = 2 * kPartWords * kVector;

    template <int P>
    void place(MatrixTile& tile, const TilePanels<P>&, const Part& part) const {
        const bool are_lone = part.num_blocks == 1;
        tile.codes = memory_;
        tile.codes_stride = (are_lone ? kKeptVectors * kRegisterWords : kPartWords) * kVector;
        tile.codes_mask = are_lone ? kKeptVectors - 1 : -1;
        tile.prefetch = nullptr;  // unpackers do it themselves
        tile.count = round_up(tile.count, kGroupVectors);  // the last group is filled up
    }

    template <int A, int P>
    void multiply(MatrixTile& tile, const TilePanels<P>& of, const Part& part) const {
        if (part.nth_block > 0) {
            matrix_tile<A, P, 0>(tile, DoNothing{});
            return;
        }
        const Index first = part.first_word / kGroupVectors;
        GroupUnpacker<Format> unpackers[P];
        for (int p = 0; p < P; ++p) {
            const Index begin = of.panels[p] * num_groups_ + first;
            const Index next = part.is_last ? of.next[p] * num_groups_
                                            : begin + tile.count / kGroupVectors;
            const char* scales = scales_ + of.panels[p] * Scales<Format>::bytes_of(num_groups_);
            unpackers[p].begin(codes_ + begin * kBytes, codes_ + next * kBytes, scales, first,
                               tile.count / kGroupVectors);
        }
        matrix_tile<A, P, 1>(tile, [&](Index step) {
            char* vectors = memory_ + (step & tile.codes_mask) * kGroupVectors * kVector;
            each<P>([&](auto p) {
                unpackers[p.value].unpack(step, vectors + p.value * tile.codes_stride);
            });
        });
    }

   private:
    static constexpr Index kBytes = Codes<Format>::kBytes;
    const char* codes_;
    const char* scales_;
    Index num_groups_;
    char* memory_;
};

// The sums of P panels and all rows of these blocks: [rows][P][16].
template <class Source, int P>
void sum_panels(const Product& product, const Source& source, Range blocks,
                const TilePanels<P>& panels, float* sums) {
    const Index count = num_words(product.weight.inputs);
    const Index part_words = blocks.size() == 1 ? max(1, count) : kPartWords;
    const Index first_row = product.x.rows(blocks.begin).begin;
    Part part;
    part.num_blocks = blocks.size();
    MatrixTile tile;
    Index shaped_rows = 0;
    for (Index w = 0; w == 0 || w < count; w += part_words) {  // without inputs sums are zeros
        part.first_word = w;
        part.num_words = min(part_words, count - w);
        part.is_last = w + part_words >= count;
        tile.count = part.num_words;
        tile.is_first = w == 0;
        source.place(tile, panels, part);
        for (Index b = blocks.begin; b < blocks.end; ++b) {
            const Range rows = product.x.rows(b);
            tile.rows = rows.size();
            tile.x = product.x.block(b) + w * tile.rows;
            tile.sums = sums + (rows.begin - first_row) * P * kPanel;
            part.nth_block = b - blocks.begin;
            const bool is_shaped = tile.rows == shaped_rows;
            shaped_rows = tile.rows;
            if (tile.rows <= kRegisterRows) {
                if (!is_shaped) shape_registers<1, P>(tile.rows);
                source.template multiply<1, P>(tile, panels, part);
            } else {
                if (!is_shaped) shape_registers<2, P>(tile.rows);
                source.template multiply<2, P>(tile, panels, part);
            }
        }
    }
}

// The outputs of these row blocks, whose rows fit into the L2 cache.
template <class Source>
void multiply_blocks(const Product& product, const Source& source, Range blocks, Range panels,
                     float* sums) {
    const Range rows = {product.x.rows(blocks.begin).begin, product.x.rows(blocks.end - 1).end};
    if (product.gate) {
        const Index half = num_panels(product.weight) / 2;
        for (Index p = panels.begin; p < panels.end; ++p) {
            const TilePanels<2> its = {{p, half + p}, {p + 1, half + p + 1}};
            sum_panels(product, source, blocks, its, sums);
            write_gated(product, rows, p, sums, 2 * kPanel, kPanel);
        }
        return;
    }
    for (Index p = panels.begin; p < panels.end; p += 2) {
        if (p + 2 <= panels.end) {
            const TilePanels<2> its = {{p, p + 1}, {p + 2, p + 3}};
            sum_panels(product, source, blocks, its, sums);
        } else {
            sum_panels(product, source, blocks, TilePanels<1>{{p}, {p + 1}}, sums);
        }
        write_sums(product, rows, {p, min(p + 2, panels.end)}, sums);
    }
}

template <class Source>
void multiply_all(const Product& product, Range blocks, Range panels, Team& team, int thread) {
    const Index row_bytes = product.x.row_words * 4;
    const Index most = max(1, kMatrixRowsBytes / max(1, row_bytes * kMatrixRows));
    const Index sums_bytes = min(most, blocks.size()) * kMatrixRows * 2 * kVector;
    const auto bytes = static_cast<std::size_t>(sums_bytes + Source::kMemory);
    char* memory = static_cast<char*>(team.scratch(thread, bytes));
    const Source source(product.weight, memory + sums_bytes);
    for (Index b = blocks.begin; b < blocks.end; b += most) {
        multiply_blocks(product, source, {b, min(b + most, blocks.end)}, panels,
                        reinterpret_cast<float*>(memory));
    }
    release_registers();
}

}  // namespace

PackedActivations matrix_activations_for(const Weight& weight, Index num_rows) {
    const Index num_blocks = (num_rows + kMatrixRows - 1) / kMatrixRows;
    const Index row_words = round_up(num_words(weight.inputs), kRegisterWords);
    return {nullptr, Type::bf16, num_rows, num_blocks, row_words};
}

void pack_matrix_activations(const Rows& x, const Index* index, const Weight& weight,
                             const PackedActivations& packed, Index block) {
    with_activation_type(x.type, [&](auto type) {
        pack_block<decltype(type)>(x, index, weight.inputs, packed, block);
    });
}

void multiply_matrix(const Product& product, Range blocks, Range panels, Team& team, int thread) {
    with_packing(product.weight.packing, [&](auto format) {
        using Format = decltype(format);
        if constexpr (Format::kHasScales) {
            multiply_all<UnpackedVectors<Format>>(product, blocks, panels, team, thread);
        } else if constexpr (Format::kType == Type::bf16) {
            multiply_all<StoredVectors>(product, blocks, panels, team, thread);
        }
    });
    if (is_streaming(product.out)) _mm_sfence();  // nothing else orders streaming stores
}

}  // namespace inferno::INFERNO_ISA

#endif
