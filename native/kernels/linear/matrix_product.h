// Products of bfloat16 in matrix registers, where an isa has them. They stand apart from those in
// vector registers, so that the compiler makes the same of these whatever is here.
#pragma once

#include "product.h"
#include "simd/matrix_registers.h"

namespace inferno::INFERNO_ISA {

// Whether a weight meets activations there that are of this type, or are to be where it has codes.
inline bool is_in_matrix(const Weight& weight, Type beside_codes) {
    return with_packing(weight.packing, [&](auto format) {
        using Format = decltype(format);
        if constexpr (Format::kHasScales) {
            return beside_codes == Type::bf16;
        } else {
            return Format::kType == Type::bf16;
        }
    });
}

// As those of product.h, for what is multiplied there.
PackedActivations matrix_activations_for(const Weight&, std::int64_t num_rows);
void pack_matrix_activations(const Rows& x, const std::int64_t* index, const Weight&,
                             const PackedActivations&, std::int64_t block);
void multiply_matrix(const Product&, Range blocks, Range panels, Team&, int thread);

}  // namespace inferno::INFERNO_ISA
