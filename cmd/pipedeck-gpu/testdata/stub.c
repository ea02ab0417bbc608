// A stand-in for libnvidia-ml.so.1 with two GPUs. -D chooses its troubles:
// HANG_INIT, HANG_DEVICE (the second GPU never answers), NO_MEMORY_V2,
// MISMATCH (the driver was upgraded), DRIVER="..." its version, GPUS=1, EVENTS (XIDs can
// be waited for), MIG (the first GPU is two instances), PROCESSES (who holds memory
// can be listed).
// Files in $NVIDIA_STUB_DIR steer it while it runs: `lost` (the second GPU is
// lost), `xid` (a number: the second GPU's next error event), and with PROCESSES
// UUID/PID (the bytes that a process holds of a GPU, for as long as it lives).
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef GPUS
#define GPUS 2
#endif
#ifndef DRIVER
#define DRIVER "580.1"
#endif

typedef struct { unsigned long long total, free_, used; } memory1;
typedef struct { unsigned version; unsigned long long total, reserved, free_, used; } memory2;
typedef struct { unsigned gpu, memory; } utilization;

static int devices[4] = {0, 1, 2, 3}; // 2 and 3 are instances of the first one
static const char *uuids[4] = {"GPU-aa", "GPU-bb", "MIG-1", "MIG-2"};

enum { NOT_FOUND = 6, TIMEOUT = 10, LOST = 15, TOO_SMALL = 7 };

static void hang(void) { for (;;) pause(); }

static char *steer(char *to, const char *name) {
	const char *dir = getenv("NVIDIA_STUB_DIR");
	snprintf(to, 4096, "%s/%s", dir ? dir : "/nonexistent", name);
	return to;
}

static int lost(int *d) {
	char path[4096];
	return *d == 1 && access(steer(path, "lost"), F_OK) == 0 ? LOST : 0;
}

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
int nvmlDeviceGetCount_v2(unsigned *n) { *n = GPUS; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, int **d) { *d = &devices[i]; return 0; }
int nvmlDeviceGetUUID(int *d, char *to, unsigned n) { strncpy(to, uuids[*d], n); return lost(d); }
int nvmlDeviceGetName(int *d, char *to, unsigned n) { strncpy(to, "Stub", n); return lost(d); }
int nvmlDeviceGetUtilizationRates(int *d, utilization *u) {
#ifdef HANG_DEVICE
	if (*d) hang();
#endif
	u->gpu = 50 + *d;
	u->memory = 1;
	return lost(d);
}

#ifdef PROCESSES
typedef struct { unsigned pid; unsigned long long used; unsigned gi, ci; } process;

// alive holds for a process that is there and no zombie.
static int alive(const char *pid) {
	char path[4096], state = 'Z';
	snprintf(path, sizeof path, "/proc/%s/stat", pid);
	FILE *f = fopen(path, "r");
	if (!f) return 0;
	if (fscanf(f, "%*d (%*[^)]) %c", &state) != 1) state = 'Z';
	fclose(f);
	return state != 'Z';
}

static unsigned holders(int *d, process *to, unsigned room) {
	char path[4096], name[4096];
	unsigned n = 0;
	DIR *dir = opendir(steer(path, uuids[*d]));
	for (struct dirent *e; dir && (e = readdir(dir));) {
		if (e->d_name[0] == '.' || !alive(e->d_name)) continue;
		process p = {atoi(e->d_name), 0, ~0u, ~0u};
		snprintf(name, sizeof name, "%.2000s/%.300s", path, e->d_name);
		FILE *f = fopen(name, "r");
		if (!f) continue;
		if (fscanf(f, "%llu", &p.used) == 1 && n < room) to[n++] = p;
		fclose(f);
	}
	if (dir) closedir(dir);
	return n;
}

int nvmlDeviceGetComputeRunningProcesses_v3(int *d, unsigned *n, process *to) {
	if (lost(d)) return LOST;
	if (*n < 64) { *n = 64; return TOO_SMALL; }
	*n = holders(d, to, *n);
	return 0;
}
#endif

static unsigned long long held(int *d) {
	unsigned long long sum = 10;
#ifdef PROCESSES
	process p[64];
	sum = 0;
	for (unsigned i = holders(d, p, 64); i-- > 0;) sum += p[i].used;
#else
	(void)d;
#endif
	return sum;
}

#ifdef PROCESSES
static const unsigned long long total = 143771ULL << 20, reserved = 615ULL << 20;
#else
static const unsigned long long total = 1000, reserved = 100;
#endif

int nvmlDeviceGetMemoryInfo(int *d, memory1 *m) {
	m->total = total; m->used = held(d) + reserved; m->free_ = m->total - m->used;
	return lost(d);
}
#ifndef NO_MEMORY_V2
int nvmlDeviceGetMemoryInfo_v2(int *d, memory2 *m) {
	m->total = total; m->reserved = reserved; m->used = held(d); m->free_ = m->total - m->reserved - m->used;
	return lost(d);
}
#endif

#ifdef EVENTS
typedef struct { int *device; unsigned long long type, data; unsigned gi, ci; } event;

int nvmlEventSetCreate(int **set) { static int it; *set = &it; return 0; }
int nvmlDeviceGetSupportedEventTypes(int *d, unsigned long long *types) { (void)d; *types = 8; return 0; }
int nvmlDeviceRegisterEvents(int *d, unsigned long long types, int *set) { (void)d; (void)types; (void)set; return 0; }
int nvmlEventSetWait_v2(int *set, event *e, unsigned ms) {
	(void)set;
	char path[4096];
	for (unsigned waited = 0; waited < ms; waited += 10, usleep(10000)) {
		FILE *f = fopen(steer(path, "xid"), "r");
		if (!f) continue;
		int read = fscanf(f, "%llu", &e->data);
		fclose(f);
		if (read != 1) continue;
		unlink(path);
		e->device = &devices[1];
		e->type = 8;
		return 0;
	}
	return TIMEOUT;
}
#endif

#ifdef MIG
int nvmlDeviceGetMigMode(int *d, unsigned *now, unsigned *next) { *now = *next = *d == 0; return lost(d); }
int nvmlDeviceGetMaxMigDeviceCount(int *d, unsigned *n) { (void)d; *n = 7; return 0; }
int nvmlDeviceGetMigDeviceHandleByIndex(int *d, unsigned i, int **to) {
	(void)d;
	if (i > 3 || i % 2) return NOT_FOUND; // places 1, 3 to 6 hold no instance
	*to = &devices[2 + i / 2];
	return 0;
}
int nvmlDeviceGetGpuInstanceId(int *d, unsigned *id) { *id = *d + 5; return 0; }
#endif
