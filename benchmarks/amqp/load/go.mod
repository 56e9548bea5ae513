module headwater/load

go 1.22
