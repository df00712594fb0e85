package pushmsg

const (
	standardAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
	noDigit          = 0xFF
)

// digits gives the value of a base64 digit of either alphabet.
var digits = func() (table [256]byte) {
	for i := range table {
		table[i] = noDigit
	}
	for value, c := range []byte(standardAlphabet) {
		table[c] = byte(value)
	}
	table['-'], table['_'] = table['+'], table['/']
	return table
}()

// decodeBase64 decodes the inside of a JSON string: both alphabets, also mixed, padded or not, line breaks anywhere. It
// accepts what encoding/base64 accepts after the alphabets are made one, and nothing else. It is written by hand to read
// past JSON escapes: a line-wrapped payload of megabytes would otherwise be copied twice before it is decoded.
//
// data is nil, and bad the offset of the first wrong character of the string, if it is no base64.
func decodeBase64(s []byte) (data []byte, bad int) {
	data = make([]byte, 0, len(s)/4*3+3)
	var group uint32
	var filled, padding, at int
	for ; len(s) > 0; at++ {
		c, width := s[0], 1
		if c == '\\' {
			c, width = character(s)
		}
		s = s[width:]
		switch value := digits[c]; {
		case value != noDigit && padding == 0:
			group = group<<6 | uint32(value)
			if filled++; filled == 4 {
				data = append(data, byte(group>>16), byte(group>>8), byte(group))
				group, filled = 0, 0
			}
		case c == '\n' || c == '\r':
		case c == '=' && filled >= 2 && filled+padding < 4:
			padding++
		default:
			return nil, at
		}
	}
	switch {
	case filled == 1 || padding > 0 && filled+padding != 4:
		return nil, at
	case filled == 2:
		data = append(data, byte(group>>4))
	case filled == 3:
		data = append(data, byte(group>>10), byte(group>>2))
	}
	return data, 0
}
