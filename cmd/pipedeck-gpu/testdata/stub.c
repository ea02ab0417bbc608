// A stand-in for libnvidia-ml.so.1 with two GPUs. -D chooses its troubles:
// HANG_INIT, HANG_DEVICE (the second GPU never answers), NO_MEMORY_V2,
// MISMATCH (the driver was upgraded), DRIVER="..." its version.
#include <string.h>
#include <unistd.h>

#ifndef DRIVER
#define DRIVER "580.1"
#endif

typedef struct { unsigned long long total, free_, used; } memory1;
typedef struct { unsigned version; unsigned long long total, reserved, free_, used; } memory2;
typedef struct { unsigned gpu, memory; } utilization;

static int devices[2] = {0, 1};

static void hang(void) { for (;;) pause(); }

int nvmlInit_v2(void) {
#ifdef HANG_INIT
	hang();
#endif
#ifdef MISMATCH
	return 18;
#endif
	return 0;
}
int nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(int code) { (void)code; return "stub"; }
int nvmlSystemGetDriverVersion(char *to, unsigned n) { strncpy(to, DRIVER, n); return 0; }
int nvmlDeviceGetCount_v2(unsigned *n) { *n = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, int **d) { *d = &devices[i]; return 0; }
int nvmlDeviceGetUUID(int *d, char *to, unsigned n) { strncpy(to, *d ? "GPU-bb" : "GPU-aa", n); return 0; }
int nvmlDeviceGetName(int *d, char *to, unsigned n) { (void)d; strncpy(to, "Stub", n); return 0; }
int nvmlDeviceGetUtilizationRates(int *d, utilization *u) {
#ifdef HANG_DEVICE
	if (*d) hang();
#endif
	u->gpu = 50 + *d;
	u->memory = 1;
	return 0;
}
int nvmlDeviceGetMemoryInfo(int *d, memory1 *m) { (void)d; m->total = 1000; m->used = 110; m->free_ = 890; return 0; }
#ifndef NO_MEMORY_V2
int nvmlDeviceGetMemoryInfo_v2(int *d, memory2 *m) {
	(void)d;
	m->total = 1000; m->reserved = 100; m->used = 10; m->free_ = 890;
	return 0;
}
#endif
