// Causal attention over the paged cache, with windows and sinks: one query and head at a time.
#include <math.h>

#include "contract/isa_functions.h"
#include "elements.h"

namespace inferno::INFERNO_ISA {
namespace {

// One token's query of one head, and what it sees.
struct Query {
    const AttentionArgs& args;
    std::int64_t request;
    std::int64_t token;
    std::int64_t head;
    std::int64_t first;  // position
    std::int64_t end;

    std::int64_t kv_head() const { return head / (args.num_heads / args.cache.kv_heads); }
    std::int64_t row(std::int64_t position) const {
        const BatchView& batch = *args.batch;
        const CacheView& cache = args.cache;
        const std::int64_t block =
            batch.block_tables[request * batch.table_width + position / cache.block_size];
        return (block * cache.kv_heads + kv_head()) * cache.block_size +
               position % cache.block_size;
    }
};

float score_of(const Query& query, std::int64_t position) {
    const CacheView& cache = query.args.cache;
    const std::int64_t head_dim = cache.head_dim, stride = cache.dimension_stride();
    const std::int64_t first = cache.key_start(query.row(position));
    float score = 0.0f;
    for (std::int64_t d = 0; d < head_dim; ++d) {
        const float q = read(query.args.q, query.token, query.head * head_dim + d);
        score += q * query.args.scale * read(cache.keys, cache.type, first + d * stride);
    }
    return cache.type == Type::i8 ? score * cache.key_scales[query.row(position)] : score;
}

// Scores become weights that add up to 1, or less where a sink takes its part.
void softmax(const Query& query, float* scores) {
    const Optional& sinks = query.args.sinks;
    const std::int64_t count = query.end - query.first;
    const float sink =
        sinks.data ? read(sinks.data, sinks.type, query.head) : -__builtin_inff();
    float most = sink;
    for (std::int64_t i = 0; i < count; ++i) most = __builtin_fmaxf(most, scores[i]);
    float total = sinks.data ? ::expf(sink - most) : 0.0f;
    for (std::int64_t i = 0; i < count; ++i) total += scores[i] = ::expf(scores[i] - most);
    for (std::int64_t i = 0; i < count; ++i) scores[i] /= total;
}

float mean_of(const Query& query, const float* weights, std::int64_t d) {
    const CacheView& cache = query.args.cache;
    float sum = 0.0f;
    for (std::int64_t position = query.first; position < query.end; ++position) {
        const std::int64_t row = query.row(position);
        const float value = read(cache.values, cache.type, row * cache.head_dim + d);
        const float scale = cache.type == Type::i8 ? cache.value_scales[row] : 1.0f;
        sum += weights[position - query.first] * scale * value;
    }
    return sum;
}

void attend(const Query& query, float* scores) {
    for (std::int64_t position = query.first; position < query.end; ++position) {
        scores[position - query.first] = score_of(query, position);
    }
    softmax(query, scores);
    const std::int64_t head_dim = query.args.cache.head_dim;
    for (std::int64_t d = 0; d < head_dim; ++d) {
        write(query.args.out, query.token, query.head * head_dim + d, mean_of(query, scores, d));
    }
}

void attend_request(const AttentionArgs& args, std::int64_t request, Team& team) {
    const BatchView& batch = *args.batch;
    const std::int64_t start = batch.query_starts[request];
    const std::int64_t length = batch.query_starts[request + 1] - start;
    const std::int64_t context_len = batch.context_lens[request];
    const auto bytes = static_cast<std::size_t>(context_len) * sizeof(float);
    team.run(length * args.num_heads, 1, [&](std::int64_t begin, std::int64_t end, int thread) {
        float* scores = static_cast<float*>(team.scratch(thread, bytes));
        for (std::int64_t i = begin; i < end; ++i) {
            const std::int64_t t = i / args.num_heads;
            const std::int64_t position = context_len - length + t;
            const std::int64_t first = position - batch.window + 1;
            attend({args, request, start + t, i % args.num_heads,
                    batch.window > 0 && first > 0 ? first : 0, position + 1},
                   scores);
        }
    });
}

}  // namespace

void attention(const AttentionArgs& args, Team& team) {
    for (std::int64_t request = 0; request < args.batch->num_requests; ++request) {
        attend_request(args, request, team);
    }
}

}  // namespace inferno::INFERNO_ISA
