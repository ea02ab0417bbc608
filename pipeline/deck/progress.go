package deck

import (
	"time"

	"pipedeck/pipeline"
	"pipedeck/pipeline/spec"
)

// maxStatus bounds a worker's status file, and one step through a log.
const (
	maxStatus = 1 << 20
	maxChunk  = 4 << 20
)

// progressReader reads the progress sources that the spec declares. It keeps
// its place in growing files, so that each byte is read once.
type progressReader struct {
	sp    *spec.Spec
	files pipeline.Files
	logs  map[string]*logPlace  // by worker id
	lines map[string]*linePlace // by path
}

type logPlace struct {
	scan   *pipeline.LogScanner
	launch string
	inode  uint64
	offset int64
}

type linePlace struct {
	count  pipeline.LineCounter
	inode  uint64
	offset int64
}

func newProgressReader(sp *spec.Spec, files pipeline.Files) *progressReader {
	return &progressReader{sp: sp, files: files, logs: map[string]*logPlace{}, lines: map[string]*linePlace{}}
}

// read looks at the sources of every stage that was ever started here.
func (p *progressReader) read(now time.Time, seen map[string]map[int]pipeline.LaunchSeen, wants map[string]pipeline.StageWant) []pipeline.ProgressReading {
	var out []pipeline.ProgressReading
	for i := range p.sp.Stages {
		st := &p.sp.Stages[i]
		want := wants[st.Name]
		if want.Want == pipeline.WantNothing {
			continue
		}
		switch {
		case st.Progress.JSON != "":
			for rank, end := want.Ranks(); rank < end; rank++ {
				out = append(out, p.status(now, st, rank, want.World))
			}
		case st.Progress.JSONL != "":
			out = append(out, p.jsonl(now, st))
		case st.Progress.Log != "":
			for rank, s := range seen[st.Name] {
				out = append(out, p.log(now, st, rank, s))
			}
		}
	}
	return out
}

func (p *progressReader) status(now time.Time, st *spec.Stage, rank, world int) pipeline.ProgressReading {
	r := pipeline.ProgressReading{At: now, Stage: st.Name, Rank: rank}
	file, err := spec.Expand(st.Progress.JSON, spec.Vars{
		Rank: rank, World: world, Stage: st.Name, Workdir: p.sp.Workdir, Run: p.sp.Run,
	})
	if err != nil {
		r.Err = err.Error()
		return r
	}
	raw, at, err := p.files.ReadFile(p.sp.Abs(file), maxStatus)
	if err != nil {
		r.Err = err.Error()
		return r
	}
	r.ChangedAt = at
	r.Done, r.Total, r.Skipped, r.Failed, err = pipeline.ParseStatus(raw, st.Progress)
	if err != nil {
		r.Err = err.Error()
	}
	return r
}

// jsonl counts the complete lines of all files that match.
func (p *progressReader) jsonl(now time.Time, st *spec.Stage) pipeline.ProgressReading {
	r := pipeline.ProgressReading{At: now, Stage: st.Name, Rank: -1}
	paths, err := p.files.Glob(p.sp.Abs(st.Progress.JSONL))
	if err != nil {
		r.Err = err.Error()
		return r
	}
	var total int64
	for _, path := range paths {
		n, err := p.countLines(path)
		if err != nil {
			r.Err = err.Error()
			continue
		}
		total += n
	}
	if r.Err == "" {
		r.Done = &total
	}
	return r
}

func (p *progressReader) countLines(path string) (int64, error) {
	place := p.lines[path]
	if place == nil {
		place = &linePlace{}
		p.lines[path] = place
	}
	for {
		data, size, inode, err := p.files.ReadFrom(path, place.offset, maxChunk)
		if err != nil {
			return 0, err
		}
		if inode != place.inode || size < place.offset {
			if place.inode != 0 {
				*place = linePlace{inode: inode}
				continue
			}
			place.inode = inode
		}
		place.count.Add(data)
		place.offset += int64(len(data))
		if len(data) == 0 || place.offset >= size {
			return place.count.Lines(), nil
		}
	}
}

func (p *progressReader) log(now time.Time, st *spec.Stage, rank int, seen pipeline.LaunchSeen) pipeline.ProgressReading {
	r := pipeline.ProgressReading{At: now, Stage: st.Name, Rank: rank}
	id := workerID(st.Name, rank)
	place := p.logs[id]
	if place == nil {
		scan, err := pipeline.NewLogScanner(st.Progress.Log)
		if err != nil {
			r.Err = err.Error()
			return r
		}
		place = &logPlace{scan: scan, launch: seen.ID}
		p.logs[id] = place
	}
	data, size, inode, err := p.files.ReadFrom(seen.Log, place.offset, maxChunk)
	if err != nil {
		r.Err = err.Error()
		return r
	}
	if size < place.offset || (place.inode != 0 && inode != place.inode) {
		place.offset = 0 // rotated: what was read so far is counted already
		data, _, inode, err = p.files.ReadFrom(seen.Log, 0, maxChunk)
		if err != nil {
			r.Err = err.Error()
			return r
		}
	}
	place.inode = inode
	place.offset += int64(len(data))
	place.scan.Add(data)
	r.Done, r.Total = place.scan.Last()
	return r
}
