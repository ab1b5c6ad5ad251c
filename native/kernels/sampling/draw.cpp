// The draw: weights are whole numbers, a random number points at one of the mass, and whose it is
// was drawn. ops/reference/sampling.py is the reference.
#include "draw.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "rank.h"

namespace inferno {
namespace {

// Tokens that are ranked at first for top-p. A choice: with fewer, more rows are ranked again.
constexpr std::int64_t kFirstCandidates = 64;
constexpr std::int64_t kMoreCandidates = 4;  // times as many, where those don't reach top-p
constexpr std::int64_t kGrainLogits = 32768;  // some microseconds

// The largest power of two of which `width` add up to less than 2^53.
float unit_weight(std::int64_t width) {
    int bits = 0;
    while (width >> bits != 0) ++bits;
    return std::ldexp(1.0f, 53 - bits);
}

Scale scale_of(const SamplingSpec& spec, float peak, std::int64_t width) {
    const float unit = unit_weight(width);
    return {peak, 1.0f / static_cast<float>(spec.temperature), unit,
            static_cast<float>(spec.min_p * unit)};
}

// Where in a mass a random number points: a whole number from 0 to below the mass.
double target_in(double mass, double uniform) {
    return std::min(std::floor(uniform * mass), mass - 1);  // the product may round up
}

// Running sums, in place of what they add up. The last one is the mass.
struct Sums {
    double* ends;
    std::int64_t count;

    void add_up() const {
        for (std::int64_t i = 1; i < count; ++i) ends[i] += ends[i - 1];
    }
    double mass() const { return ends[count - 1]; }
    double before(std::int64_t place) const { return place == 0 ? 0 : ends[place - 1]; }
    // The first place that reaches a mass, or passes a target.
    std::int64_t reaching(double mass) const {
        return std::lower_bound(ends, ends + count - 1, mass) - ends;
    }
    std::int64_t passing(double target) const {
        return std::upper_bound(ends, ends + count - 1, target) - ends;
    }
};

struct Largest {
    float logit;  // NaN if there is one
    std::int64_t token;
};

// Finds the first of the largest logits of rows.
class PeakFinder {
   public:
    static std::size_t bytes(std::int64_t width) {
        return static_cast<std::size_t>(num_blocks(width)) * sizeof(float);
    }

    PeakFinder(const Kernels& kernels, std::int64_t width, void* memory)
        : kernels_(kernels), width_(width), peaks_(static_cast<float*>(memory)) {}

    Largest find(const float* logits) const {
        kernels_.find_peaks(logits, width_, peaks_);
        std::int64_t highest = 0;
        for (std::int64_t block = 0; block < num_blocks(width_); ++block) {
            if (std::isnan(peaks_[block])) return {peaks_[block], 0};
            if (peaks_[block] > peaks_[highest]) highest = block;
        }
        const float peak = peaks_[highest];
        return {peak, std::find(logits + highest * kLogitBlock, logits + width_, peak) - logits};
    }

   private:
    const Kernels& kernels_;
    std::int64_t width_;
    float* peaks_;
};

// Draws the tokens of rows, in memory of its own.
class Drawer {
   public:
    static std::size_t bytes(std::int64_t width) {
        const auto num_sums = static_cast<std::size_t>(capacity(width));
        return num_sums * (sizeof(double) + sizeof(float)) + Ranker::bytes(width);
    }

    Drawer(const Kernels& kernels, std::int64_t width, void* memory)
        : kernels_(kernels),
          width_(width),
          ends_(static_cast<double*>(memory)),
          weights_(reinterpret_cast<float*>(ends_ + capacity(width))),
          ranker_(kernels, width, weights_ + capacity(width)) {}

    std::int64_t draw(const float* logits, const SamplingSpec& spec, float peak, double uniform) {
        const Scale scale = scale_of(spec, peak, width_);
        if (spec.top_k > 0) return draw_top_k(logits, scale, spec, uniform);
        if (spec.top_p < 1) return draw_top_p(logits, scale, spec.top_p, uniform);
        return draw_from_all(logits, scale, uniform);
    }

    // The masses of the blocks of a row.
    Sums blocks(const float* logits, const Scale& scale) {
        kernels_.weigh_blocks(logits, width_, scale, ends_);
        const Sums sums = {ends_, num_blocks(width_)};
        sums.add_up();
        return sums;
    }

   private:
    // The number of weights, and of their sums: for all tokens, or for a block.
    static std::int64_t capacity(std::int64_t width) {
        return round_up(std::max(width, kLogitBlock), 16);
    }

    // In the order of ids: over the blocks, then in one.
    std::int64_t draw_from_all(const float* logits, const Scale& scale, double uniform) {
        const Sums masses = blocks(logits, scale);
        const double target = target_in(masses.mass(), uniform);
        const std::int64_t block = masses.passing(target), first = block * kLogitBlock;
        const double rest = target - masses.before(block);
        const std::int64_t size = std::min(kLogitBlock, width_ - first);
        return first + weights(logits + first, size, scale).passing(rest);
    }

    std::int64_t draw_top_k(const float* logits, const Scale& scale, const SamplingSpec& spec,
                            double uniform) {
        ranker_.read(logits);
        const Ranked ranked = ranker_.rank(std::min(static_cast<std::int64_t>(spec.top_k), width_));
        const Sums sums = weights(logits, ranked, scale);
        return ranked.ids[draw_rank(sums, spec.top_p * sums.mass(), uniform)];
    }

    std::int64_t draw_top_p(const float* logits, const Scale& scale, double top_p,
                            double uniform) {
        const double least_mass = top_p * blocks(logits, scale).mass();
        ranker_.read(logits);
        std::int64_t count = kFirstCandidates;
        for (;;) {
            const Ranked ranked = ranker_.rank(std::min(count, width_));
            const Sums sums = weights(logits, ranked, scale);
            if (sums.mass() >= least_mass || count >= width_) {
                return ranked.ids[draw_rank(sums, least_mass, uniform)];
            }
            // Tokens that rank lower weigh no more than those that are ranked.
            const double least_times = least_mass / sums.mass();
            count *= std::max(kMoreCandidates, static_cast<std::int64_t>(least_times));
            if (count > Ranker::kMostCandidates) count = width_;
        }
    }

    // A rank among as many first ones as have so much mass.
    static std::int64_t draw_rank(const Sums& sums, double least_mass, double uniform) {
        const double mass = sums.ends[sums.reaching(least_mass)];
        return sums.passing(target_in(mass, uniform));
    }

    // The weights of some logits.
    Sums weights(const float* logits, const Ranked& ranked, const Scale& scale) {
        for (std::int64_t i = 0; i < ranked.count; ++i) weights_[i] = logits[ranked.ids[i]];
        return weights(weights_, ranked.count, scale);
    }

    Sums weights(const float* logits, std::int64_t count, const Scale& scale) {
        kernels_.weigh_each(logits, count, scale, weights_);
        std::copy(weights_, weights_ + count, ends_);
        const Sums sums = {ends_, count};
        sums.add_up();
        return sums;
    }

    const Kernels& kernels_;
    std::int64_t width_;
    double* ends_;
    float* weights_;
    Ranker ranker_;
};

const float* row_of(const Rows& rows, std::int64_t row) {
    return static_cast<const float*>(rows.data) + row * rows.stride;
}

// Calls f(row, helper) for every row; each thread has a helper of its own, and memory for a row
// behind it.
template <class Helper, class F>
void for_rows(const Rows& logits, const Kernels& kernels, Team& team, F&& f,
              std::size_t more_bytes = 0) {
    const std::int64_t width = logits.width, grain = 1 + kGrainLogits / width;
    const std::size_t bytes = Helper::bytes(width);
    team.run(logits.count, grain, [&](std::int64_t begin, std::int64_t end, int thread) {
        auto* memory = static_cast<std::byte*>(team.scratch(thread, bytes + more_bytes));
        Helper helper(kernels, width, memory);
        for (std::int64_t row = begin; row < end; ++row) f(row, helper, memory + bytes);
    });
}

constexpr std::int64_t kWordBits = 32;
constexpr std::uint32_t kAll = 0xffffffffu;
constexpr float kNever = -std::numeric_limits<float>::infinity();

// Writes a row without the tokens that may not be chosen. Words that forbid or allow all of their
// tokens are the most by far.
void write_allowed(const float* logits, std::int64_t width, Allowed words, float* out) {
    for (std::int64_t first = 0; first < width; first += kWordBits) {
        const std::uint32_t word = words[first / kWordBits];
        const std::int64_t size = std::min(kWordBits, width - first);
        if (word == 0) {
            std::fill_n(out + first, size, kNever);
        } else if (word == kAll) {
            std::copy_n(logits + first, size, out + first);
        } else {
            for (std::int64_t i = 0; i < size; ++i) {
                out[first + i] = word >> i & 1 ? logits[first + i] : kNever;
            }
        }
    }
}

// As for_rows: f(row, logits, helper), with the logits of tokens that may be chosen, or with a null
// pointer where none may. They are written into a thread's own memory, which its cache holds.
template <class Helper, class F>
void for_allowed(const Rows& logits, Allowed allowed, const Kernels& kernels, Team& team, F&& f) {
    const std::int64_t width = logits.width, num_words = (width + kWordBits - 1) / kWordBits;
    const auto call = [&](std::int64_t row, Helper& helper, void* memory) {
        const float* own = row_of(logits, row);
        const Allowed words = allowed == nullptr ? nullptr : allowed + row * num_words;
        const auto are = [&](std::uint32_t value) {
            return std::all_of(words, words + num_words, [=](auto word) { return word == value; });
        };
        if (words == nullptr || are(kAll)) {
            f(row, own, helper);
        } else if (are(0)) {
            f(row, static_cast<const float*>(nullptr), helper);
        } else {
            write_allowed(own, width, words, static_cast<float*>(memory));
            f(row, static_cast<const float*>(memory), helper);
        }
    };
    const std::size_t row_bytes = static_cast<std::size_t>(width) * sizeof(float);
    for_rows<Helper>(logits, kernels, team, call, allowed == nullptr ? 0 : row_bytes);
}

}  // namespace

void argmax(const Rows& logits, Allowed allowed, const Kernels& kernels, float* peaks,
            std::int64_t* tokens, Team& team) {
    const auto find = [&](std::int64_t row, const float* own, const PeakFinder& finder) {
        const Largest found = own == nullptr ? Largest{kNever, 0} : finder.find(own);
        peaks[row] = found.logit;
        tokens[row] = found.token;
    };
    for_allowed<PeakFinder>(logits, allowed, kernels, team, find);
}

void draw(const Rows& logits, Allowed allowed, const float* peaks,
          const std::vector<SamplingSpec>& specs, const double* uniform, const Kernels& kernels,
          std::int64_t* tokens, Team& team) {
    const auto draw_row = [&](std::int64_t row, const float* own, Drawer& drawer) {
        const SamplingSpec& spec = specs[static_cast<std::size_t>(row)];
        if (own == nullptr || spec.temperature == 0 || !std::isfinite(peaks[row])) return;
        tokens[row] = drawer.draw(own, spec, peaks[row], uniform[row]);
    };
    for_allowed<Drawer>(logits, allowed, kernels, team, draw_row);
}

void log_totals(const Rows& logits, const float* peaks, const Kernels& kernels, double* out,
                Team& team) {
    const float unit = unit_weight(logits.width);
    for_rows<Drawer>(logits, kernels, team, [&](std::int64_t row, Drawer& drawer, void*) {
        const Scale scale = {peaks[row], 1, unit, 0};
        out[row] = std::log(drawer.blocks(row_of(logits, row), scale).mass() / unit);
    });
}

void top_tokens(const Rows& logits, std::int64_t count, const Kernels& kernels,
                std::int64_t* tokens, Team& team) {
    for_rows<Ranker>(logits, kernels, team, [&](std::int64_t row, Ranker& ranker, void*) {
        std::int64_t* out = tokens + row * count;
        std::fill(out, out + count, 0);
        if (!ranker.read(row_of(logits, row))) return;
        const Ranked ranked = ranker.rank(std::min(count, logits.width));
        std::copy(ranked.ids, ranked.ids + ranked.count, out);
    });
}

}  // namespace inferno
