// A pool of threads that owns the cores: bounded spinning between kernels, then sleep.
#pragma once

#include <cstddef>
#include <cstdint>

namespace inferno {

// What a thread is told: do parts [begin, end) of the work.
using Body = void (*)(void* context, std::int64_t begin, std::int64_t end, int thread);

class Pool {
   public:
    // `num_threads` counts the caller, who works too.
    explicit Pool(int num_threads);
    ~Pool();
    Pool(const Pool&) = delete;
    Pool& operator=(const Pool&) = delete;

    int num_threads() const { return num_threads_; }

    // Call `body` for all of [0, count), cut into pieces of at most `grain` parts, and wait. Which
    // thread does which piece is left to chance, so no result may depend on it.
    void run_pieces(std::int64_t count, std::int64_t grain, Body body, void* context);

    template <class F>
    void run(std::int64_t count, std::int64_t grain, F&& f) {
        run_pieces(
            count, grain,
            [](void* context, std::int64_t begin, std::int64_t end, int thread) {
                (*static_cast<F*>(context))(begin, end, thread);
            },
            &f);
    }

    // Memory of one thread, aligned to 64 bytes, kept until the pool ends; what was in it is lost.
    // The caller may ask for thread `num_threads()`: that is shared by all.
    void* scratch(int thread, std::size_t bytes);

   private:
    struct State;
    State* state_;
    int num_threads_;
};

}  // namespace inferno
