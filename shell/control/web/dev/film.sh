#!/bin/sh
# Makes a film for the pretend appliances: dev/film.sh DIR [SECONDS]. 30 CPU seconds for 180.
# One file per rendition, HLS and DASH over the same files, as the demo has them but smaller.
set -eu
seconds="${2:-180}"
mkdir -p "$1"
cd "$1"
font=/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf
style="fontfile=$font:fontcolor=white:box=1:boxcolor=black@0.6:fontsize=40:x=40:y=40"
clock="drawtext=$style:timecode='00\:00\:00\:00':rate=25"
ladder="[0:v]$clock,split=3[a][b][c];[a]scale=426:240[v0];[b]scale=640:360[v1];[c]null[v2]"
ffmpeg -hide_banner -loglevel error -y \
  -f lavfi -i testsrc2=size=960x540:rate=25 \
  -f lavfi -i sine=frequency=440:sample_rate=48000:beep_factor=4 -t "$seconds" \
  -filter_complex "$ladder" -map '[v0]' -map '[v1]' -map '[v2]' -map 1:a \
  -c:v libx264 -preset ultrafast -pix_fmt yuv420p -g 50 -keyint_min 50 -sc_threshold 0 \
  -flags +cgop -b:v:0 500k -maxrate:v:0 600k -bufsize:v:0 1000k \
  -b:v:1 1100k -maxrate:v:1 1300k -bufsize:v:1 2200k \
  -b:v:2 2200k -maxrate:v:2 2600k -bufsize:v:2 4400k -c:a aac -b:a 128k -ac 2 \
  -f dash -seg_duration 4 -single_file 1 -use_template 0 -use_timeline 0 \
  -dash_segment_type mp4 -hls_playlist 1 -hls_master_name master.m3u8 \
  -single_file_name 'r$RepresentationID$.mp4' -adaptation_sets 'id=0,streams=v id=1,streams=a' \
  manifest.mpd
