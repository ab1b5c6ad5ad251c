// Routing: a selection by rank, and a softmax in ascending order of experts or ranks.
#include "route.h"

#include <cmath>
#include <cstring>
#include <vector>

namespace inferno {
namespace {

float element(const Rows& rows, std::int64_t row, std::int64_t column) {
    const std::int64_t index = row * rows.stride + column;
    if (rows.type == Type::f32) return static_cast<const float*>(rows.data)[index];
    const std::uint32_t bits =
        static_cast<std::uint32_t>(static_cast<const std::uint16_t*>(rows.data)[index]) << 16;
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

bool ranks_above(float a, float b) { return std::isnan(a) ? !std::isnan(b) : a > b; }

}  // namespace

void route(const Rows& logits, std::int64_t num_chosen, bool renormalize, std::int64_t* experts,
           float* weights) {
    std::vector<float> row(static_cast<std::size_t>(logits.width));
    std::vector<char> is_taken(row.size());
    for (std::int64_t t = 0; t < logits.count; ++t) {
        std::int64_t* chosen = experts + t * num_chosen;
        float* weight = weights + t * num_chosen;
        for (std::size_t x = 0; x < row.size(); ++x) {
            row[x] = element(logits, t, static_cast<std::int64_t>(x));
            is_taken[x] = 0;
        }
        for (std::int64_t rank = 0; rank < num_chosen; ++rank) {
            std::size_t best = row.size();
            for (std::size_t x = 0; x < row.size(); ++x) {
                if (!is_taken[x] && (best == row.size() || ranks_above(row[x], row[best]))) best = x;
            }
            is_taken[best] = 1;
            chosen[rank] = static_cast<std::int64_t>(best);
            weight[rank] = row[best];
        }
        const float largest = weight[0];
        float total = 0;
        if (renormalize) {
            for (std::int64_t a = 0; a < num_chosen; ++a) total += std::exp(weight[a] - largest);
        } else {
            for (float logit : row) total += std::exp(logit - largest);
        }
        for (std::int64_t a = 0; a < num_chosen; ++a) {
            weight[a] = std::exp(weight[a] - largest) / total;
        }
    }
}

}  // namespace inferno
