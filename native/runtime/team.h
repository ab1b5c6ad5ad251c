// The threads that kernels run on, as the kernels of one engine see them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "pool.h"

namespace inferno {

// A number of threads with memory for each: the caller's own, which is thread 0, and others that
// the pool lends (pool.h says how). Any number of teams may compute at once, each for one caller at
// a time. A team of one thread borrows none.
class Team {
   public:
    // `num_threads` counts the caller, who works too.
    explicit Team(int num_threads);
    ~Team();
    Team(const Team&) = delete;
    Team& operator=(const Team&) = delete;

    int num_threads() const { return num_threads_; }

    // The time of a kernel call, or of several that share one loan of the pool's threads, as those
    // of a captured step do. The first kernel that needs more than the caller's thread borrows
    // them, and they are given back when the outermost Turn of the team ends. Where other teams
    // have been at work lately, one thread fewer is borrowed, so that no more run than there are
    // cores.
    class Turn {
       public:
        explicit Turn(Team& team);
        ~Turn();
        Turn(const Turn&) = delete;
        Turn& operator=(const Turn&) = delete;

       private:
        Team& team_;
    };

    // Call `body` for all of [0, count), and wait: once for everything where the caller's thread is
    // enough, else for pieces of `grain` parts, the last of which may be smaller. So `grain` bounds
    // no call, and no memory may be sized by it. Which thread does which piece is left to chance,
    // so no result may depend on it. If a piece throws, no further ones begin, those under way are
    // finished, and then the exception that was caught first is thrown on; others are lost.
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

    // The one block of memory of a thread, aligned to 64 bytes, kept until the team ends. A later
    // call returns the same block, or, where it needs more, frees that and returns a larger one; in
    // either case nothing may be expected to be in it. The caller may ask for thread
    // `num_threads()`: that block is shared by all. Throws std::bad_alloc.
    void* scratch(int thread, std::size_t bytes);

   private:
    struct Scratch {
        void* memory = nullptr;
        std::size_t bytes = 0;
    };

    const int num_threads_;
    int num_turns_ = 0;
    int num_wanted_ = 1;    // threads, while a Turn lives
    Pool* pool_ = nullptr;  // while its threads are lent to this team
    std::vector<Scratch> scratch_;
};

}  // namespace inferno
