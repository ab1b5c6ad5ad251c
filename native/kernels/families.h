// The functions of one level, each defined in a file of its own.
#pragma once

#include "../kernels.h"

namespace inferno::INFERNO_LEVEL {

void linear(const LinearArgs&, Pool&);
void experts(const ExpertsArgs&, Pool&);
void embedding(const std::int64_t* ids, const Weight&, const Rows& out, Pool&);
void cos_sin(const BatchView&, const float* frequencies, std::int64_t half, float factor, float* out,
             Pool&);
void rms_norm(const NormArgs&, Pool&);
void rotate_and_store(const RotateArgs&, Pool&);
void attention(const AttentionArgs&, Pool&);
void gate(const Rows& x, const Activation&, const Rows& out, Pool&);
void quantize(const Rows& source, std::int64_t first, const Weight& target, Pool&);
void find_peaks(const float* logits, std::int64_t width, float* peaks);
void weigh_blocks(const float* logits, std::int64_t width, const Scale&, double* masses);
void weigh_each(const float* logits, std::int64_t width, const Scale&, float* weights);
std::int64_t find_at_least(const float* logits, std::int64_t width, float least,
                           std::int32_t* places);

const Kernels* table();

}  // namespace inferno::INFERNO_LEVEL
