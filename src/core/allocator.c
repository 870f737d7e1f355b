/* Gives large blocks back to the system as soon as they are freed.
 *
 * glibc raises the size from which a block is mapped by itself to that of the largest one that was freed, up to 32 MiB.
 * From then on each thread keeps up to 64 MiB of what it has freed, and many threads read a large object once in a while.
 * A size that is set stays (mallopt(3), M_MMAP_THRESHOLD).
 */
#include <features.h>

#ifdef __GLIBC__
#include <malloc.h>

__attribute__((constructor)) static void decklog_set_allocator(void) { mallopt(M_MMAP_THRESHOLD, 256 * 1024); }
#endif

/* Named on the linker's command line, which keeps this file. */
const int decklog_allocator_is_set = 1;
