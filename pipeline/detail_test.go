package pipeline

import (
	"slices"
	"testing"
)

func TestMaskEnv(t *testing.T) {
	t.Parallel()
	for kv, want := range map[string]EnvValue{
		"CUDA_VISIBLE_DEVICES=3":        {Name: "CUDA_VISIBLE_DEVICES", Value: "3"},
		"HF_TOKEN=hf_abc":               {Name: "HF_TOKEN", Value: masked, Masked: true},
		"AWS_SECRET_ACCESS_KEY=x":       {Name: "AWS_SECRET_ACCESS_KEY", Value: masked, Masked: true},
		"WANDB_API_KEY=":                {Name: "WANDB_API_KEY"},
		"PWD=/workspace":                {Name: "PWD", Value: "/workspace"},
		"DB_PWD=x":                      {Name: "DB_PWD", Value: masked, Masked: true},
		"KEYBOARD=de":                   {Name: "KEYBOARD", Value: "de"},
		"PROXY=http://u:pw@proxy:3128/": {Name: "PROXY", Value: "http://u:" + masked + "@proxy:3128/"},
		"PROXY=http://proxy:3128/a@b":   {Name: "PROXY", Value: "http://proxy:3128/a@b"},
	} {
		if got := MaskEnv([]string{kv})[0]; got != want {
			t.Errorf("%q is shown as %+v, want %+v", kv, got, want)
		}
	}
}

func TestMaskArgs(t *testing.T) {
	t.Parallel()
	got := MaskArgs([]string{"python3", "--api-key", "abc", "--token=def", "--auth", "--verbose", "--out", "key", "HF_TOKEN=x", "s3://a:b@c"})
	want := []string{"python3", "--api-key", masked, "--token=" + masked, "--auth", "--verbose", "--out", "key", "HF_TOKEN=" + masked, "s3://a:" + masked + "@c"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}
