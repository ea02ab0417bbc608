package store

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/aws/smithy-go"

	"pipedeck/pipeline"
)

const head = `<?xml version="1.0" encoding="UTF-8"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">`

func TestScanPage(t *testing.T) {
	t.Parallel()
	one := func(key string) []pipeline.Object { return []pipeline.Object{{Key: key, Size: 7, ETag: "abc"}} }
	entry := func(key string) string {
		return "<Contents><Key>" + key + "</Key><ETag>&quot;abc&quot;</ETag><Size>7</Size></Contents>"
	}
	for _, row := range []struct {
		name, xml string
		want      page
	}{
		{"empty", head + `<IsTruncated>false</IsTruncated></ListBucketResult>`, page{}},
		{"empty root", `<ListBucketResult/>`, page{}},
		{"truncated and empty", head + `<IsTruncated>true</IsTruncated><NextContinuationToken>a&amp;b</NextContinuationToken></ListBucketResult>`, page{truncated: true, next: "a&b"}},
		{"entities", head + entry("a&amp;&lt;&gt;&quot;&apos;&#233;&#xE9;&#x1;&#10;") + `</ListBucketResult>`, page{objects: one("a&<>\"'éé\x01\n")}},
		{"cdata", head + entry("a<![CDATA[&amp;<]]>b") + `</ListBucketResult>`, page{objects: one("a&amp;<b")}},
		{"comments and blanks", head + "\n  <!-- <Key> -->\n" + entry("k") + "\n</ListBucketResult>\n", page{objects: one("k")}},
		{"prefix and attributes", `<s3:ListBucketResult xmlns:s3="x">` + strings.ReplaceAll(strings.ReplaceAll(entry("k"), "<K", "<s3:K"), "</K", "</s3:K") + `</s3:ListBucketResult>`, page{objects: one("k")}},
		{"owner inside", head + `<Contents><Key>k</Key><Owner><ID>x</ID><Key>no</Key></Owner><ETag>"abc"</ETag><Size> 7 </Size></Contents></ListBucketResult>`, page{objects: one("k")}},
		{"url, plus is a space", head + `<EncodingType>url</EncodingType>` + entry("a+b%2Bc%25") + `</ListBucketResult>`, page{objects: one("a b+c%")}},
		{"url, %20 is a space", head + `<EncodingType>url</EncodingType>` + entry("a%20b+c") + `</ListBucketResult>`, page{objects: one("a b+c")}},
		{"url, broken escape", head + entry("a%zz%4") + `<EncodingType>url</EncodingType></ListBucketResult>`, page{objects: one("a%zz%4")}},
		{"no url form", head + entry("a+b%20") + `</ListBucketResult>`, page{objects: one("a+b%20")}},
		{"common prefixes", head + `<CommonPrefixes><Prefix>p/</Prefix></CommonPrefixes><Contents><Key>k</Key><ETag>abc</ETag><Size>7</Size><Key2/></Contents></ListBucketResult>`, page{objects: one("k")}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			got, err := scanPage([]byte(row.xml))
			if err != nil {
				t.Fatal(err)
			}
			if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", row.want) {
				t.Errorf("\n got %+v\nwant %+v", got, row.want)
			}
		})
	}
}

func TestScanPageRefusesWhatIsNoListing(t *testing.T) {
	t.Parallel()
	good := string(listingOf(3))
	for n := range len(good) - 1 {
		if p, err := scanPage([]byte(good[:n])); err == nil {
			t.Fatalf("a listing cut off after %d of %d bytes was read as %+v", n, len(good), p)
		}
	}
	for _, bad := range []string{
		"", "hello", "<html><body></body></html>", head + "<Contents><Key>a</Contents></ListBucketResult>",
		head + "<Contents><Key>a</Key><Size>-1</Size></Contents></ListBucketResult>",
		head + "<Contents><Key>a</Key><Size>x</Size></Contents></ListBucketResult>",
		head + "<Contents><Size>1</Size></Contents></ListBucketResult>",
		head + "<Contents><Key>&nope;</Key></Contents></ListBucketResult>",
		head + "<Contents><Key>a&</Key></Contents></ListBucketResult>",
		"</a>", "<>", "< >",
	} {
		if p, err := scanPage([]byte(bad)); err == nil {
			t.Errorf("%q was read as %+v", bad, p)
		}
	}
	var api *smithy.GenericAPIError
	_, err := scanPage([]byte(`<Error><Code>SlowDown</Code><Message>later</Message></Error>`))
	if !errors.As(err, &api) || api.Code != "SlowDown" {
		t.Errorf("an error in a 200 was read as %v", err)
	}
}

func TestCheckPage(t *testing.T) {
	t.Parallel()
	objects := func(keys ...string) (out []pipeline.Object) {
		for _, k := range keys {
			out = append(out, pipeline.Object{Key: k})
		}
		return out
	}
	for _, row := range []struct {
		name string
		page page
		req  pipeline.ListRequest
		ok   bool
	}{
		{"good", page{objects: objects("p/a", "p/b")}, pipeline.ListRequest{Prefix: "p/"}, true},
		{"more to come", page{objects: objects("p/a"), truncated: true, next: "t"}, pipeline.ListRequest{Prefix: "p/"}, true},
		{"empty, more to come", page{truncated: true, next: "t"}, pipeline.ListRequest{}, true},
		{"token without truncation", page{objects: objects("a"), next: "t"}, pipeline.ListRequest{}, true},
		{"outside the prefix", page{objects: objects("q/a")}, pipeline.ListRequest{Prefix: "p/"}, false},
		{"same key twice", page{objects: objects("a", "a")}, pipeline.ListRequest{}, false},
		{"out of order", page{objects: objects("b", "a")}, pipeline.ListRequest{}, false},
		{"at the start", page{objects: objects("b")}, pipeline.ListRequest{StartAfter: "b"}, false},
		{"before the start, later page", page{objects: objects("a")}, pipeline.ListRequest{StartAfter: "b", Token: "t"}, false},
		{"no token", page{truncated: true}, pipeline.ListRequest{}, false},
		{"token again", page{truncated: true, next: "t"}, pipeline.ListRequest{Token: "t"}, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			got, err := row.page.check(row.req)
			if (err == nil) != row.ok {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
}

func FuzzScanPage(f *testing.F) {
	f.Add(listingOf(2))
	f.Add([]byte(head + `<EncodingType>url</EncodingType><Contents><Key>a%2</Key><Size>1</Size></Contents></ListBucketResult>`))
	f.Add([]byte(`<ListBucketResult><Contents><Key><![CDATA[a]]>&#x10FFFF;</Key></Contents></ListBucketResult>`))
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := scanPage(data)
		if err != nil {
			return
		}
		for _, o := range p.objects {
			if o.Key == "" || o.Size < 0 {
				t.Errorf("%+v", o)
			}
		}
	})
}

// listingOf is a page of n objects as AWS writes it.
func listingOf(n int) []byte {
	var b strings.Builder
	b.WriteString(head + `<Name>bucket</Name><Prefix>deck/r1/hidden_states/</Prefix><KeyCount>1000</KeyCount><MaxKeys>1000</MaxKeys><EncodingType>url</EncodingType><IsTruncated>true</IsTruncated><NextContinuationToken>token==</NextContinuationToken>`)
	for i := range n {
		fmt.Fprintf(&b, `<Contents><Key>deck/r1/hidden_states/sample_%09d.safetensors</Key><LastModified>2026-11-30T10:00:00.000Z</LastModified><ETag>&quot;%032x&quot;</ETag><Size>%d</Size><StorageClass>STANDARD</StorageClass></Contents>`, i, i, 1_200_000+i)
	}
	b.WriteString(`</ListBucketResult>`)
	return []byte(b.String())
}
