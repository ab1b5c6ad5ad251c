// The operands of attention's products: single numbers in float32, or pairs of bfloat16 by dot products.
#pragma once

#include "simd/elements.h"
#include "simd/pairs.h"

namespace inferno {
namespace {

// Keys and values held as the cache's type C, in the cache itself or copied.
template <class C, bool is_in_cache = true>
struct Single {
    using Raw = typename C::Raw;
    using Factor = F32;  // queries and weights
    static constexpr Index kCount = 1;
    static constexpr bool kIsInCache = is_in_cache;

    static F splat(const float* factor) { return inferno::splat(*factor); }
    static F load(const Raw* terms) { return C::load(terms); }
    static F add_product(F sum, F factor, F term) { return fma(factor, term, sum); }
};

// Two dimensions of a key side by side, or two positions' values.
struct Pair {
    using Raw = std::uint16_t;
    using Factor = BF16;
    static constexpr Index kCount = 2;
    static constexpr bool kIsInCache = false;

    static I splat(const Raw* factors) { return splat_pair(factors); }
    static I load(const Raw* terms) { return load_int(terms); }
    static F add_product(F sum, I factors, I terms) { return dot2(sum, factors, terms); }
};

}  // namespace
}  // namespace inferno
