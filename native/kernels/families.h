// The functions of one level, each defined in a file of its own.
#pragma once

#include "../kernels.h"

namespace inferno::INFERNO_LEVEL {

void linear(const LinearArgs&, Team&);
void experts(const ExpertsArgs&, Team&);
void embedding(const std::int64_t* ids, const Weight&, const Rows& out, Team&);
void cos_sin(const BatchView&, const float* frequencies, std::int64_t half, float factor, float* out,
             Team&);
void rms_norm(const NormArgs&, Team&);
void rotate_and_store(const RotateArgs&, Team&);
void attention(const AttentionArgs&, Team&);
void gate(const Rows& x, const Activation&, const Rows& out, Team&);
void quantize(const Rows& source, std::int64_t first, const Weight& target, Team&);
void find_peaks(const float* logits, std::int64_t width, float* peaks);
void weigh_blocks(const float* logits, std::int64_t width, const Scale&, double* masses);
void weigh_each(const float* logits, std::int64_t width, const Scale&, float* weights);
std::int64_t find_at_least(const float* logits, std::int64_t width, float least,
                           std::int32_t* places);

const Kernels* table();

}  // namespace inferno::INFERNO_LEVEL
