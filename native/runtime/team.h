// The threads that kernels run on, as the kernels of one engine see them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "pool.h"

namespace inferno {

// A number of threads with memory for each. Any number of teams may be at work at once, each on
// behalf of one caller at a time; they take turns with the threads of the pool. A team of one thread
// needs none of them, and no turn.
class Team {
   public:
    // `num_threads` counts the caller, who works too.
    explicit Team(int num_threads);
    ~Team();
    Team(const Team&) = delete;
    Team& operator=(const Team&) = delete;

    int num_threads() const { return num_threads_; }

    // While one lives, threads that were lent to its team stay so: a step is one turn, whatever
    // kernels it has, and begins when the first of them needs more than the caller. Where another
    // team is at work too, a turn has a thread less, so that there are not more than cores.
    class Turn {
       public:
        explicit Turn(Team& team);
        ~Turn();
        Turn(const Turn&) = delete;
        Turn& operator=(const Turn&) = delete;

       private:
        Team& team_;
    };

    // Call `body` for all of [0, count), cut into pieces of at most `grain` parts, and wait. Which
    // thread does which piece is left to chance, so no result may depend on it. What a piece throws
    // is thrown on when no thread is at work any more.
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

    // Memory of one thread, aligned to 64 bytes, kept until the team ends; what was in it is lost.
    // The caller may ask for thread `num_threads()`: that is shared by all. Throws std::bad_alloc.
    void* scratch(int thread, std::size_t bytes);

   private:
    struct Scratch {
        void* memory = nullptr;
        std::size_t bytes = 0;
    };

    const int num_threads_;
    int num_turns_ = 0;
    int num_wanted_ = 1;    // threads of the outermost turn
    Pool* pool_ = nullptr;  // while its threads are lent to this team
    std::vector<Scratch> scratch_;
};

}  // namespace inferno
