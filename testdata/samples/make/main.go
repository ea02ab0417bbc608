// Command samples writes the data sets beside its folder anew: the same rows as
// jsonl, as arrow file and stream, as parquet, and as a folder that Hugging Face's
// save_to_disk would write.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/compress"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
)

const (
	count = 24 // rows; one of them is empty, one is null
	empty = 5
	null  = 9
	half  = 14 // where the second batch, row group or file begins
)

type row struct {
	IDs  []int64 `json:"input_ids"`
	Mask []int64 `json:"loss_mask"`
	Text string  `json:"text"`
}

func rows() []row {
	var out []row
	for i := range count {
		r := row{IDs: []int64{}, Mask: []int64{}, Text: fmt.Sprintf("row %d \u9375", i)}
		for k := range 3 + i*7%11 {
			r.IDs = append(r.IDs, int64(1000+i*31+k))
			r.Mask = append(r.Mask, int64(min(1, k/2)))
		}
		if i == empty || i == null {
			r.IDs, r.Mask = []int64{}, []int64{}
		}
		out = append(out, r)
	}
	return out
}

// schema is what tokenisers write: small lists, or large ones of wide integers.
func schema(large bool) *arrow.Schema {
	ids, mask := arrow.DataType(arrow.ListOf(arrow.PrimitiveTypes.Int32)), arrow.DataType(arrow.ListOf(arrow.PrimitiveTypes.Int8))
	if large {
		ids, mask = arrow.LargeListOf(arrow.PrimitiveTypes.Int64), arrow.LargeListOf(arrow.PrimitiveTypes.Int64)
	}
	return arrow.NewSchema([]arrow.Field{
		{Name: "text", Type: arrow.BinaryTypes.String},
		{Name: "input_ids", Type: ids, Nullable: true},
		{Name: "loss_mask", Type: mask, Nullable: true},
	}, nil)
}

// batch makes rows from to to; the null row has neither ids nor a mask.
func batch(s *arrow.Schema, from, to int) arrow.RecordBatch {
	b := array.NewRecordBuilder(memory.DefaultAllocator, s)
	defer b.Release()
	for i, r := range rows()[from:to] {
		b.Field(0).(*array.StringBuilder).Append(r.Text)
		for f, values := range map[int][]int64{1: r.IDs, 2: r.Mask} {
			list := b.Field(f).(array.ListLikeBuilder)
			if from+i == null {
				list.AppendNull()
				continue
			}
			list.Append(true)
			for _, v := range values {
				switch to := list.ValueBuilder().(type) {
				case *array.Int64Builder:
					to.Append(v)
				case *array.Int32Builder:
					to.Append(int32(v))
				case *array.Int8Builder:
					to.Append(int8(v))
				}
			}
		}
	}
	return b.NewRecordBatch()
}

type writer interface {
	Write(arrow.RecordBatch) error
	Close() error
}

// write writes rows from to to, in as many batches as there are cuts between them.
func write(path string, s *arrow.Schema, open func(io.WriteCloser) (writer, error), cuts ...int) {
	check(os.MkdirAll(filepath.Dir(path), 0o755))
	f, err := os.Create(path)
	check(err)
	w, err := open(f)
	check(err)
	for i := range len(cuts) - 1 {
		check(w.Write(batch(s, cuts[i], cuts[i+1])))
	}
	check(w.Close())
	_ = f.Close()
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func main() {
	dir := ".."
	var b []byte
	for _, r := range rows() {
		line, err := json.Marshal(r)
		check(err)
		b = append(append(b, line...), '\n')
	}
	check(os.WriteFile(filepath.Join(dir, "rows.jsonl"), b, 0o644))
	for name, large := range map[string]bool{"rows": false, "large": true} {
		s := schema(large)
		stream := func(w io.WriteCloser) (writer, error) { return ipc.NewWriter(w, ipc.WithSchema(s)), nil }
		file := func(w io.WriteCloser) (writer, error) { return ipc.NewFileWriter(w, ipc.WithSchema(s)) }
		pq := func(w io.WriteCloser) (writer, error) {
			return pqarrow.NewFileWriter(s, w, parquet.NewWriterProperties(parquet.WithCompression(compress.Codecs.Snappy)), pqarrow.NewArrowWriterProperties(pqarrow.WithStoreSchema()))
		}
		write(filepath.Join(dir, name+"-file.arrow"), s, file, 0, half, count)
		write(filepath.Join(dir, name+"-stream.arrow"), s, stream, 0, half, count)
		write(filepath.Join(dir, name+".parquet"), s, pq, 0, half, count)
		if large {
			continue
		}
		write(filepath.Join(dir, "saved/data-00000-of-00002.arrow"), s, stream, 0, half)
		write(filepath.Join(dir, "saved/data-00001-of-00002.arrow"), s, stream, half, count)
		write(filepath.Join(dir, "parts/b.parquet"), s, pq, half, count)
		write(filepath.Join(dir, "parts/a.parquet"), s, pq, 0, half)
	}
	state := `{"_data_files": [{"filename": "data-00000-of-00002.arrow"}, {"filename": "data-00001-of-00002.arrow"}], "_format_type": null, "_split": null}` + "\n"
	check(os.WriteFile(filepath.Join(dir, "saved/state.json"), []byte(state), 0o644))
}
