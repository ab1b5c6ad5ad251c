// Kernels of several engines at once, without Python: in each thread steps of one engine, recorded
// ones too, while others load, fail and go. Ends with 1 where a bit differs from what an engine gives
// alone. It is what ThreadSanitizer watches (`make sanitize SANITIZER=thread`).
//
//   engines SEED [SECONDS]
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <stdexcept>
#include <thread>
#include <vector>

#include "kernels/linear/pack.h"
#include "kernels/moe/route.h"
#include "kernels/sampling/draw.h"
#include "runtime/checksum.h"
#include "runtime/context.h"
#include "runtime/prefault.h"

using namespace inferno;

namespace {

constexpr std::int64_t kWidth = 256, kHeads = 8, kKvHeads = 2, kHeadDim = 32, kHidden = 96;
constexpr std::int64_t kVocab = 3000, kExperts = 4, kChosen = 2, kBlockSize = 16;
constexpr std::int64_t kPrompts[] = {1, 70, 9};  // tokens of each request
constexpr std::int64_t kRequests = 3, kTokens = 80, kTableWidth = 5, kBlocks = 9;
constexpr int kEngines = 5, kNumThreads[kEngines] = {1, 2, 2, 3, 4};

struct Free {
    void operator()(void* memory) const { std::free(memory); }
};

// Zeros, aligned to a page.
class Pages {
   public:
    explicit Pages(std::size_t bytes)
        : bytes_((bytes / 4096 + 1) * 4096), data_(std::aligned_alloc(4096, bytes_)) {
        if (!data_) throw std::bad_alloc();
        std::memset(data_.get(), 0, bytes_);
    }
    template <class T>
    T* as() const {
        return static_cast<T*>(data_.get());
    }
    std::size_t bytes() const { return bytes_; }

   private:
    std::size_t bytes_;
    std::unique_ptr<void, Free> data_;
};

struct Matrix {
    Matrix(std::int64_t count, std::int64_t width)
        : memory(static_cast<std::size_t>(count * width) * 4),
          rows{memory.as<float>(), Type::f32, count, width, width} {}
    Matrix(std::int64_t count, std::int64_t width, std::mt19937& random) : Matrix(count, width) {
        std::uniform_real_distribution<float> value(-1, 1);
        for (std::int64_t i = 0; i < count * width; ++i) memory.as<float>()[i] = value(random);
    }
    Pages memory;
    Rows rows;
};

struct Packed {
    Packed(Packing packing, std::int64_t outputs, std::int64_t inputs)
        : weight{packing, nullptr, nullptr, outputs, inputs},
          codes(static_cast<std::size_t>(num_panels(weight) * panel_bytes(weight))),
          scales(static_cast<std::size_t>(num_panels(weight) * panel_scale_bytes(weight))) {
        weight.data = codes.as<void>();
        weight.scales = scales.as<void>();
    }
    void fill(const Rows& source, Team& team) {
        (is_quantized(weight.packing) ? the_kernels().quantize : pack)(source, 0, weight, team);
    }
    Weight weight;
    Pages codes, scales;
};

// A layer with its cache and all that lies between its ops.
struct Engine {
    explicit Engine(int num_threads, Packing packing)
        : context(std::make_shared<KernelContext>(num_threads)),
          random(7),
          table(packing, kVocab, kWidth),
          qkv(packing, (kHeads + 2 * kKvHeads) * kHeadDim, kWidth),
          out_proj(packing, kWidth, kWidth),
          gate_up(packing, 2 * kHidden, kWidth),
          down(packing, kWidth, kHidden),
          graph(*context) {
        for (Packed* each : {&table, &qkv, &out_proj, &gate_up, &down}) {
            const Matrix source(each->weight.outputs, each->weight.inputs, random);
            each->fill(source.rows, context->team);
        }
        gate_ups.assign(kExperts, gate_up.weight);
        downs.assign(kExperts, down.weight);
        std::int64_t token = 0, block = 1;
        for (std::int64_t r = 0; r < kRequests; ++r) {
            starts[r] = token;
            lengths[r] = kPrompts[r];
            for (std::int64_t p = 0; p < kPrompts[r]; ++p, ++token) {
                if (p % kBlockSize == 0) tables[r * kTableWidth + p / kBlockSize] = block++;
                slots[token] = (block - 1) * kBlockSize + p % kBlockSize;
                positions[token] = p;
                ids[token] = static_cast<std::int64_t>(random() % kVocab);
            }
        }
        starts[kRequests] = token;
        for (std::int64_t i = 0; i < kHeadDim / 2; ++i) {
            frequencies[i] = 1.0f / static_cast<float>(i + 1);
        }
    }

    BatchView batch() const {
        return {kRequests, kTokens, 0, starts, lengths, tables, kTableWidth, slots, positions, ids};
    }
    CacheView cache() const {
        return {keys.as<void>(), values.as<void>(), nullptr,  nullptr, Type::f32,
                kBlocks,         kBlockSize,        kKvHeads, kHeadDim};
    }
    Rows part(const Matrix& m, std::int64_t first, std::int64_t width) const {
        return {static_cast<float*>(m.rows.data) + first, Type::f32, kTokens, width, m.rows.stride};
    }

    template <class F>
    void call(F&& f) {
        if (context->recording) context->recording->add(f);
        f(context->team);
    }

    void forward() {
        const Kernels& kernels = the_kernels();
        call([&](Team& t) { kernels.embedding(ids, table.weight, x.rows, t); });
        call([&](Team& t) {
            kernels.cos_sin(batch(), frequencies, kHeadDim / 2, 1, angles.memory.as<float>(), t);
        });
        call([&](Team& t) {
            kernels.rms_norm({x.rows, nullptr, nullptr, {}, 1e-6f, normed.rows}, t);
        });
        call([&](Team& t) { kernels.linear({normed.rows, qkv.weight, {}, mixed.rows}, t); });
        call([&](Team& t) {
            const BatchView view = batch();
            const std::int64_t q = kHeads * kHeadDim, kv = kKvHeads * kHeadDim;
            kernels.rotate_and_store(
                {part(mixed, 0, q), part(mixed, q, kv), part(mixed, q + kv, kv),
                 angles.memory.as<float>(), {}, {}, 1e-6f, kHeads, &view, cache(), rotated.rows},
                t);
        });
        call([&](Team& t) {
            const BatchView view = batch();
            kernels.attention({rotated.rows, kHeads, 0.2f, {}, &view, cache(), attended.rows}, t);
        });
        call([&](Team& t) { kernels.linear({attended.rows, out_proj.weight, {}, x.rows}, t); });
        call([&](Team& t) { kernels.linear({x.rows, gate_up.weight, {}, both.rows}, t); });
        call([&](Team& t) { kernels.gate(both.rows, {}, hidden.rows, t); });
        call([&](Team&) {
            const Rows logits = part(x, 0, kExperts);
            route(logits, kChosen, true, chosen, chances);
        });
        call([&](Team& t) {
            kernels.experts({x.rows, chosen, chances, kChosen, kExperts, gate_ups.data(),
                             downs.data(), {}, {}, {}, mixture.rows},
                            t);
        });
        call([&](Team& t) { kernels.linear({mixture.rows, table.weight, {}, logits.rows}, t); });
    }

    std::uint64_t sample() {
        const Kernels& kernels = the_kernels();
        Team& team = context->team;
        argmax(logits.rows, nullptr, kernels, peaks, tokens, team);
        const std::vector<SamplingSpec> specs(kTokens, {0.8, 50, 0.9, 0});
        draw(logits.rows, nullptr, peaks, specs, uniform, kernels, tokens, team);
        log_totals(logits.rows, peaks, kernels, totals, team);
        top_tokens(logits.rows, 5, kernels, top, team);
        return xxh64(tokens, sizeof tokens) + xxh64(totals, sizeof totals) +
               3 * xxh64(top, sizeof top) +
               5 * xxh64(logits.rows.data, static_cast<std::size_t>(kTokens * kVocab) * 4) +
               7 * xxh64(hidden.rows.data, static_cast<std::size_t>(kTokens * kHidden) * 4);
    }

    // A checksum of all that a step gives.
    std::uint64_t step(bool is_replayed) {
        context->enter();
        if (is_replayed && graph.size() > 0) {
            graph.run();
        } else if (is_replayed) {
            graph.start();
            forward();
            graph.stop();
        } else {
            Team::Turn turn(context->team);
            forward();
        }
        const std::uint64_t sum = sample();
        context->leave();
        return sum;
    }

    // What one piece throws is thrown on, and nothing else is disturbed.
    bool fails_as_it_should(std::int64_t bad_piece) {
        std::atomic<std::int64_t> num_done{0};
        try {
            context->team.run(40, 1, [&](std::int64_t begin, std::int64_t end, int) {
                if (begin <= bad_piece && bad_piece < end) throw std::runtime_error("as planned");
                num_done += end - begin;
            });
        } catch (const std::runtime_error&) {
            return num_done < 40;
        }
        return false;
    }

    std::shared_ptr<KernelContext> context;
    std::mt19937 random;
    Packed table, qkv, out_proj, gate_up, down;
    std::vector<Weight> gate_ups, downs;
    std::int64_t starts[kRequests + 1], lengths[kRequests], tables[kRequests * kTableWidth] = {};
    std::int64_t slots[kTokens], positions[kTokens], ids[kTokens];
    float frequencies[kHeadDim / 2];
    Pages keys{kBlocks * kBlockSize * kKvHeads * kHeadDim * 4};
    Pages values{kBlocks * kBlockSize * kKvHeads * kHeadDim * 4};
    Matrix x{kTokens, kWidth}, normed{kTokens, kWidth}, angles{kTokens, kHeadDim};
    Matrix mixed{kTokens, (kHeads + 2 * kKvHeads) * kHeadDim}, rotated{kTokens, kWidth};
    Matrix attended{kTokens, kWidth}, both{kTokens, 2 * kHidden}, hidden{kTokens, kHidden};
    Matrix mixture{kTokens, kWidth}, logits{kTokens, kVocab};
    std::int64_t chosen[kTokens * kChosen], tokens[kTokens], top[kTokens * 5];
    float chances[kTokens * kChosen], peaks[kTokens];
    double uniform[kTokens] = {}, totals[kTokens];
    CapturedGraph graph;
    Prefault prefault{{{keys.as<char>(), keys.bytes()}, {values.as<char>(), values.bytes()}}};
};

constexpr Packing kPackings[] = {Packing::f32, Packing::bf16, Packing::int8, Packing::int4};

Packing packing_of(int engine) { return kPackings[engine % 4]; }

std::atomic<int> num_wrong{0};

void check(bool is_right, const char* what) {
    if (is_right) return;
    ++num_wrong;
    std::fprintf(stderr, "wrong: %s\n", what);
}

void generate(int index, std::uint64_t expected, unsigned seed,
              std::chrono::steady_clock::time_point end) {
    std::mt19937 random(seed);
    auto engine = std::make_unique<Engine>(kNumThreads[index], packing_of(index));
    do {
        const unsigned what = random() % 8;
        if (what == 0) engine = std::make_unique<Engine>(kNumThreads[index], packing_of(index));
        if (what == 1) check(engine->fails_as_it_should(random() % 40), "a failure");
        check(engine->step(what % 2 == 0) == expected, "bits of a step");
    } while (std::chrono::steady_clock::now() < end);
}

// The work of a load: weights packed in a context that no other thread has, and pages touched.
void load(unsigned seed, std::chrono::steady_clock::time_point end) {
    std::mt19937 random(seed);
    const Matrix source(128, kWidth, random);
    std::vector<std::uint8_t> blocks(128 * kWidth / 2, 0x35), exponents(128 * kWidth / kScaleGroup, 120);
    do {
        Pages pages(1 << 20);
        Prefault prefault({{pages.as<char>(), pages.bytes()}});
        KernelContext context(static_cast<int>(1 + random() % 4));
        for (const Packing packing : kPackings) {
            Packed first(packing, 128, kWidth), second(packing, 128, kWidth);
            first.fill(source.rows, context.team);
            second.fill(source.rows, context.team);
            check(xxh64(first.weight.data, first.codes.bytes()) ==
                      xxh64(second.weight.data, second.codes.bytes()),
                  "packed weights");
        }
        Packed packed(Packing::mxfp4, 128, kWidth);
        pack_stored(blocks.data(), exponents.data(), packed.weight, context.team);
    } while (std::chrono::steady_clock::now() < end);
}

}  // namespace

int main(int argc, char** argv) {
    const unsigned seed = argc > 1 ? static_cast<unsigned>(std::atoi(argv[1])) : 1;
    const int seconds = argc > 2 ? std::atoi(argv[2]) : 1;
    std::vector<std::uint64_t> expected;
    for (int index = 0; index < kEngines; ++index) {
        expected.push_back(Engine(1, packing_of(index)).step(false));
    }
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
    std::vector<std::thread> threads;
    for (int index = 0; index < kEngines; ++index) {
        const auto sum = expected[static_cast<std::size_t>(index)];
        threads.emplace_back([=] { generate(index, sum, seed * 100 + index, end); });
    }
    threads.emplace_back([=] { load(seed * 100 + 99, end); });
    for (std::thread& thread : threads) thread.join();
    return num_wrong > 0;
}
