// The state that one engine's kernel calls work with.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <vector>

#include "contract/kernels.h"
#include "arena.h"
#include "team.h"

namespace inferno {

struct KernelContext;

// The calls of a step, to be made again without Python between them.
class CapturedGraph {
   public:
    using Call = std::function<void(Team&)>;

    // The context outlives it.
    explicit CapturedGraph(KernelContext& context) : context_(context) {}
    ~CapturedGraph();
    CapturedGraph(const CapturedGraph&) = delete;
    CapturedGraph& operator=(const CapturedGraph&) = delete;

    // Record the calls of the context, from now on, until `stop`; they are made meanwhile.
    void start();
    void stop();
    void add(const Call& call) { calls_.push_back(call); }
    // Make them, in one turn.
    void run() const;
    std::size_t size() const { return calls_.size(); }

   private:
    KernelContext& context_;
    std::vector<Call> calls_;
};

// A number of threads, their memory, and memory for what is computed. It serves one thread at a
// time, that which it is bound to: what is called there works with it.
struct KernelContext {
    // beside_codes   what rows are made beside codes (LinearArgs).
    // Throws std::invalid_argument where the chosen isa lacks what that takes.
    explicit KernelContext(int num_threads, Type beside_codes = Type::i8);
    KernelContext(const KernelContext&) = delete;
    KernelContext& operator=(const KernelContext&) = delete;

    Team team;
    const Type beside_codes;
    // A graph's results keep their places for its next run, so others lie elsewhere.
    const std::shared_ptr<Arena> results = std::make_shared<Arena>();
    const std::shared_ptr<Arena> recorded_results = std::make_shared<Arena>();
    CapturedGraph* recording = nullptr;  // the graph that is being captured, if any

    // Let the system have the memory of results that nobody holds; for between two steps.
    void release_memory() noexcept {
        results->release();
        recorded_results->release();
    }

    const std::shared_ptr<Arena>& arena() const { return recording ? recorded_results : results; }

    // The one that this thread entered last; else one of its own, with one thread.
    static KernelContext& current();

    // Bind it to this thread, which may have it already, until `leave` was called as often. Throws
    // std::logic_error if another thread has it, or this one has entered another since.
    void enter();
    void leave();

   private:
    std::atomic<bool> is_bound_{false};
    int num_entered_ = 0;                // these two are the binding thread's
    KernelContext* previous_ = nullptr;  // what was bound there before
};

// The kernels of the chosen isa, for all contexts of the process; the best one's at first.
const Kernels& the_kernels();
void set_kernels(const Kernels& kernels);

}  // namespace inferno
