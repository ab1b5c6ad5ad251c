// How fast linear layers are, beside reading their weights and doing nothing: medians of rounds in
// which both take turns, so that whatever else the machine does hits both; and of the best round,
// which tells more where others use the same processor.
//
//   cmake --build build --target bench_linear
//   [ISA=avx2] [PACKING=int8] [ACTIVATIONS=bf16] build/bench_linear THREADS OUTPUTS INPUTS ROWS...
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

#include "contract/kernels.h"

using namespace inferno;

namespace {

constexpr std::size_t kMemory = std::size_t{256} << 20;  // far more than a cache
constexpr int kRounds = 40;

const Kernels* the_kernels;
Type beside_codes = Type::i8;

double median(std::vector<double> values) {
    std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
    return values[values.size() / 2];
}

template <class F>
double seconds(F&& f) {
    const auto start = std::chrono::steady_clock::now();
    f();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Finite whatever they are taken for: in float32, bfloat16 and all scales, exponents lie around 0.
void fill(char* memory) {
    std::mt19937 random(0);
    for (std::size_t i = 0; i < kMemory; i += 2) {
        const std::uint16_t bits = static_cast<std::uint16_t>(0x3c00 | (random() & 0x80ff));
        memory[i] = static_cast<char>(bits);
        memory[i + 1] = static_cast<char>(bits >> 8);
    }
}

void read_all(const char* memory, std::int64_t bytes, Team& team) {
    constexpr std::int64_t kPiece = 1 << 16;
    team.run((bytes + kPiece - 1) / kPiece, 2, [&](std::int64_t begin, std::int64_t end, int) {
        const char* last = memory + std::min(end * kPiece, bytes);
        for (const char* p = memory + begin * kPiece; p < last; p += 64) {
            (void)*static_cast<const volatile char*>(p);
        }
    });
}

void measure(Weight weight, std::int64_t num_rows, const char* memory, Team& team) {
    const std::int64_t code_bytes = num_panels(weight) * panel_bytes(weight);
    const std::int64_t scale_bytes = num_panels(weight) * panel_scale_bytes(weight);
    const std::int64_t bytes = round_up(code_bytes + scale_bytes, 64);
    const std::int64_t copies = static_cast<std::int64_t>(kMemory) / bytes;
    if (copies < 1) return static_cast<void>(std::printf("too large\n"));
    std::vector<std::uint16_t> x(num_rows * weight.inputs, 0x3f80), out(num_rows * weight.outputs);
    std::vector<double> multiplying, reading;
    for (int round = 0; round < kRounds; ++round) {
        const char* there = memory + bytes * (round % copies);
        weight.data = there;
        weight.scales = there + code_bytes;
        LinearArgs args = {
            {x.data(), Type::bf16, num_rows, weight.inputs, weight.inputs},
            weight,
            {nullptr, Type::f32},
            {out.data(), Type::bf16, num_rows, weight.outputs, weight.outputs}};
        args.beside_codes = beside_codes;
        multiplying.push_back(seconds([&] { the_kernels->linear(args, team); }));
        const char* elsewhere = memory + bytes * ((round + copies / 2) % copies);
        reading.push_back(seconds([&] { read_all(elsewhere, bytes, team); }));
    }
    const double time = median(multiplying);
    const double best = *std::min_element(multiplying.begin(), multiplying.end());
    const double operations = 2e-9 * num_rows * weight.outputs * weight.inputs;
    std::printf("%4lld rows  %6.1f GB/s, %3.0f %% of reading  %7.1f GOP/s, %7.1f at best\n",
                static_cast<long long>(num_rows), bytes / time / 1e9, 100 * median(reading) / time,
                operations / time, operations / best);
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 5) {
        std::fprintf(stderr, "usage: %s THREADS OUTPUTS INPUTS ROWS...\n", argv[0]);
        return 2;
    }
    const char* isa = std::getenv("ISA");
    the_kernels = isa ? find_kernels(isa) : best_kernels();
    if (!the_kernels) {
        std::fprintf(stderr, "this processor has no isa %s\n", isa);
        return 2;
    }
    const char* activations = std::getenv("ACTIVATIONS");
    if (activations && std::strcmp(activations, "bf16") == 0) beside_codes = Type::bf16;
    if (beside_codes == Type::bf16 && !the_kernels->has_matrix_registers) {
        std::fprintf(stderr, "%s has no matrix registers\n", the_kernels->isa);
        return 2;
    }
    const char* only = std::getenv("PACKING");
    Team team(std::atoi(argv[1]));
    char* memory = static_cast<char*>(std::aligned_alloc(4096, kMemory));
    fill(memory);
    const auto measure_all = [&](const char* name, Packing packing) {
        if (only && std::strcmp(name, only) != 0) return;
        std::printf("%s, %s\n", name, the_kernels->isa);
        for (int i = 4; i < argc; ++i) {
            const Weight weight = {packing, nullptr, nullptr, std::atoll(argv[2]),
                                   std::atoll(argv[3])};
            measure(weight, std::atoll(argv[i]), memory, team);
        }
    };
#define INFERNO_MEASURE(name, number, Traits) measure_all(#name, Packing::name);
    INFERNO_PACKINGS(INFERNO_MEASURE)
#undef INFERNO_MEASURE
    std::free(memory);
}
