// How activations are rounded to bfloat16: to nearest, ties to even, in one instruction where there
// is one. To it denormals are zero, and NaN keeps its sign; round_bf16 is alike in all isas.
#pragma once

#include "lanes.h"

namespace inferno {
namespace {

#if defined(__AVX512BF16__)

inline __m256i narrow(F a) { return (__m256i)_mm512_cvtneps_pbh(a.v); }
inline F round_activation(F a) {
    return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(narrow(a)), 16))};
}
inline void store_activation(std::uint16_t* p, F a) {
    _mm256_storeu_si256((__m256i*)p, narrow(a));
}
inline void store_activation_first(std::uint16_t* p, F a, int n) {
    _mm256_mask_storeu_epi16(p, static_cast<__mmask16>((1u << n) - 1), narrow(a));
}

#else

inline F round_activation(F a) { return round_bf16(a); }
inline void store_activation(std::uint16_t* p, F a) { store_bf16(p, a); }
inline void store_activation_first(std::uint16_t* p, F a, int n) { store_bf16_first(p, a, n); }

#endif

}  // namespace
}  // namespace inferno
