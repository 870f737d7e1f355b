/* Gives memory back to the system once it is free.
 *
 * Large blocks: glibc raises the size from which a block is mapped by itself to that of the largest one that was freed, up to
 * 32 MiB. From then on each thread keeps up to 64 MiB of what it has freed, and many threads read a large object once in a
 * while. A size that is set stays (mallopt(3), M_MMAP_THRESHOLD).
 *
 * The end of a heap: once that size is set, glibc gives it back whenever it has 128 KiB (M_TRIM_THRESHOLD). A reader frees a page
 * of entries and takes the next one, and two threads that change the memory map each time read 1.2 times as much as one; with a
 * mebibyte, 1.9 times. What is smaller than this threshold stays with a thread's heap.
 *
 * Small blocks: glibc gives back the end of a heap alone, and after a burst the blocks that stay lie between those that were
 * freed. A thread of the daemon gives back the whole pages between them (malloc_trim(3)) in an interval.
 */
#define _GNU_SOURCE
#include <features.h>

#ifdef __GLIBC__
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

/* Bytes from which a block is mapped by itself, and bytes from which the end of a heap is given back. */
enum { MAPPED = 256 << 10, FREE_END = 1 << 20 };
/* Seconds between two times at which free pages are given back. */
enum { INTERVAL = 5 };
/* Bytes of its stack, which count where the data of the process is limited. */
enum { STACK = 128 << 10 };

static void *give_back(void *unused) {
    for (;;) {
        sleep(INTERVAL);
        malloc_trim(0);
    }
    return unused;
}

/* The signals of the process are for others. Without the thread the pages stay, which stops nothing. */
static void start_giving_back(void) {
    sigset_t all, before;
    pthread_attr_t attributes;
    pthread_t thread;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK);
    if (pthread_create(&thread, &attributes, give_back, NULL) == 0) {
        pthread_setname_np(thread, "allocator");
        pthread_detach(thread);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* The daemon is `decklog run`; the other commands hold little. */
__attribute__((constructor)) static void decklog_set_allocator(int count, char **arguments) {
    mallopt(M_MMAP_THRESHOLD, MAPPED);
    mallopt(M_TRIM_THRESHOLD, FREE_END);
    for (int at = 1; at < count; at++) {
        if (strcmp(arguments[at], "run") == 0) {
            start_giving_back();
            return;
        }
    }
}
#endif

/* Named on the linker's command line, which keeps this file. */
const int decklog_allocator_is_set = 1;
